//! How a run ends: no new orders, no more faults, and what is there must come to its end by itself.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rowlock::{
    Admin,
    observe::{CheckState, VerifyLimits},
};

use super::{
    faults::{file, line},
    fleet::Fleet,
    ground::{Ground, Site},
    history::Rest,
    jobs::NOBODYS,
    log::now_ms,
    orders::{Role, RowerOrders},
    run::Plan,
};
use crate::base::Base;

/// The worker that dies in the end: the only one of its name.
const LAST_TO_DIE: &str = "direct";

/// No new orders, no more faults: what is there must end by itself.
pub(super) async fn come_to_rest(plan: &Plan, ground: &Ground) -> Result<Rest> {
    let (mut rest, limit) = (Rest::default(), plan.patience);
    for proxy in ground.proxies() {
        proxy.calm();
    }
    line::set(&ground.url, true).await?;
    // One more dies while nothing else is wrong, and nobody takes its seat: the others must see to what it held.
    let well_from = ground
        .record()
        .outages
        .iter()
        .map(|(_, to)| *to)
        .max()
        .unwrap_or_default();
    // Earlier deaths are not mistaken for it, and every worker holds jobs again.
    let well_from = well_from.max(now_ms() + 2 * plan.lease.as_millis() as i64);
    while now_ms() <= well_from + 1_000 {
        ground.fleet.lock().await.mind()?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut fleet = ground.fleet.lock().await;
    one_dies(ground, &mut fleet).await?;
    fleet
        .stop(|seat| matches!(seat.orders.role, Role::Produce { .. }))
        .await?;
    let started = Instant::now();
    loop {
        fleet.mind()?;
        let left = left(&ground.url).await?;
        if left.is_empty() {
            break;
        }
        if started.elapsed() > limit {
            let who = held(&ground.url).await?;
            rest.unrest = Some(format!("after {limit:?} there are still {left}: {who}"));
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    fleet.stop(|_| true).await?;
    drop(fleet);
    if let Site::Postgres { .. } = ground.site {
        quiet(ground, &mut rest).await?;
    } else {
        rest.damage = file::damage(&ground.url).await?;
        rest.files_checked = 1;
    }
    audit(&ground.url, &mut rest).await?;
    rest.newer_schema_left_alone = Some(older_binary(plan, ground).await?);
    Ok(rest)
}

/// Kills a worker at a moment when it holds a job, if such a moment comes.
async fn one_dies(ground: &Ground, fleet: &mut Fleet) -> Result<()> {
    // The one that lives now, not one of its name before it, and one that has done something, by which it is known.
    let holds = format!(
        "select count(*) from rowlock.lease l \
         where l.worker = (select w.id from rowlock.worker w where w.name = '{LAST_TO_DIE}' order by w.beat desc limit 1) \
           and exists (select 1 from rowlock.outcome o where o.worker = l.worker and o.outcome = 'done')"
    );
    let mut base = Base::connect(&ground.url).await?;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(20) {
        fleet.mind()?;
        let Some(at) = fleet.named(LAST_TO_DIE) else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let since = fleet.rower(at).freeze()?;
        if base.number(&holds).await? > 0 {
            let (name, at) = fleet.vacate(at)?;
            ground.record().deaths.push((name, at));
            return Ok(());
        }
        fleet.rower(at).thaw(since)?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// What users can ask, asked of every row: `rowlock verify`.
async fn audit(url: &str, rest: &mut Rest) -> Result<()> {
    let limits = VerifyLimits::new().rows(10_000_000).time(Duration::from_secs(600));
    let seen = Admin::open(url, "rowlock")?.observe().verify(&limits).await?;
    for check in seen.checks.iter().filter(|check| check.state != CheckState::Holds) {
        let first = check
            .breaches
            .first()
            .map(|breach| format!("{breach:?}"))
            .unwrap_or_default();
        rest.damage
            .push(format!("verify: {:?} {:?} {first}", check.invariant, check.state));
    }
    rest.files_checked += seen.checks.len();
    Ok(())
}

/// A schema from the future, and a binary that does not know it: whether the binary left it alone.
async fn older_binary(plan: &Plan, ground: &Ground) -> Result<bool> {
    let mut base = Base::connect(&ground.url).await?;
    base.run("insert into rowlock.migration (version, name, oldest) values (9999, 'from the future', 9999)")
        .await?;
    let before = base.number("select count(*) from rowlock.migration").await?;
    let orders = RowerOrders {
        url: ground.url.clone(),
        log: plan.folder.join("migrate.log"),
        till: ([127, 0, 0, 1], 1).into(),
        blind_till: ([127, 0, 0, 1], 1).into(),
        role: Role::Migrate,
    };
    let mut command = tokio::process::Command::new(plan.programs.join("rower"));
    command
        .arg(serde_json::to_string(&orders)?)
        .envs(plan.env.iter().cloned());
    // It may refuse or find nothing to do; what counts is what it leaves. Its stdin stays open until it ends.
    command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null());
    command.stderr(std::process::Stdio::null());
    let mut child = command.spawn()?;
    let _open = child.stdin.take();
    child.wait().await?;
    let after = base.number("select count(*) from rowlock.migration").await?;
    let newest = base
        .number("select cast(max(version) as bigint) from rowlock.migration")
        .await?;
    base.run("delete from rowlock.migration where version = 9999").await?;
    Ok(before == after && newest == 9999)
}

/// What is not over yet; a job of an unknown kind stays for ever.
async fn left(url: &str) -> Result<String> {
    let mut base = Base::connect(url).await?;
    let mut left = Vec::new();
    for (what, sql) in [
        ("leases", "select count(*) from rowlock.lease".to_owned()),
        ("waiting jobs", "select count(*) from rowlock.waiting".to_owned()),
        (
            "ready jobs",
            format!(
                "select count(*) from rowlock.ready r join rowlock.job j on j.id = r.id where j.kind <> '{NOBODYS}'"
            ),
        ),
    ] {
        let count = base.number(&sql).await?;
        if count > 0 {
            left.push(format!("{count} {what}"));
        }
    }
    Ok(left.join(", "))
}

/// Who holds the leases that are left.
async fn held(url: &str) -> Result<String> {
    let mut base = Base::connect(url).await?;
    let sql = "select l.id, l.epoch, coalesce(w.name, 'nobody'), cast(w.dead as integer), {ms:w.beat}, {ms:l.claimed_at}, l.worker \
               from rowlock.lease l left join rowlock.worker w on w.id = l.worker limit 20";
    let rows = crate::rows!(&mut base, sql, (i64, i64, String, Option<i32>, Option<i64>, i64, i64))?;
    let told = rows.iter().map(|(id, epoch, name, dead, beat, claimed, worker)| {
        format!(
            "job {id} epoch {epoch} of {name} w{worker:016x} (dead {dead:?}, beat {beat:?}, claimed {claimed}, now {})",
            super::log::now_ms()
        )
    });
    Ok(told.collect::<Vec<_>>().join("; "))
}

/// Once every process is gone, nothing of theirs is left on the server, and its indexes agree with its tables.
async fn quiet(ground: &Ground, rest: &mut Rest) -> Result<()> {
    let mut base = Base::connect(&ground.url).await?;
    let open =
        "select count(*) from pg_stat_activity where state like 'idle in transaction%' and pid <> pg_backend_pid()";
    let locks = "select count(*) from pg_locks where locktype = 'advisory'";
    let started = Instant::now();
    loop {
        (rest.idle_in_transaction, rest.advisory_locks) = (base.number(open).await?, base.number(locks).await?);
        let held = rest.idle_in_transaction + rest.advisory_locks;
        // A server that has not noticed yet that its client is gone gets a moment.
        if held == 0 || started.elapsed() > Duration::from_secs(10) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    base.run("create extension if not exists amcheck")
        .await
        .context("amcheck comes with PostgreSQL's contrib")?;
    let indexes = "select c.oid::regclass::text from pg_index i join pg_class c on c.oid = i.indexrelid \
                   join pg_am a on a.oid = c.relam join pg_namespace n on n.oid = c.relnamespace \
                   where a.amname = 'btree' and c.relkind = 'i' and n.nspname in ('rowlock', 'public')";
    for (index,) in crate::rows!(&mut base, indexes, (String,))? {
        rest.files_checked += 1;
        if let Err(error) = base.run(&format!("select bt_index_check('{index}', true)")).await {
            rest.damage.push(format!("{index}: {error:#}"));
        }
    }
    Ok(())
}
