//! Reads a history together: from the database at rest, and from what the processes wrote down.

use std::{collections::HashMap, path::Path};

use anyhow::{Context, Result};
use rowlock::Ended;

use super::{
    history::{BreakerMove, EffectRow, History, JobRow, LedgerRow, OutcomeRow, Place, RowerLog, Run},
    jobs::LINE,
    log::Line,
};
use crate::{base::Base, rows};

/// What the database says.
///
/// # Errors
/// It cannot be read.
pub async fn database(base: &mut Base, history: &mut History) -> Result<()> {
    history.has_xids = matches!(base, Base::Postgres(_));
    let places = places(base).await?;
    // When everybody could see a row that is never changed.
    let committed = |made: &str| match matches!(base, Base::Postgres(_)) {
        true => format!("coalesce({{ms:pg_xact_commit_timestamp(xmin)}}, {{ms:{made}}})"),
        false => format!("{{ms:{made}}}"),
    };
    let (job_seen, move_seen) = (committed("created_at"), committed("changed_at"));
    history.jobs = jobs(base, &places, &job_seen).await?;
    history.outcomes = outcomes(base).await?;
    let ledger = rows!(
        base,
        "select job, epoch, purchase, note, {xid} from ledger",
        (i64, i64, i64, String, i64)
    )?;
    let booked = ledger.into_iter().map(|(job, epoch, purchase, note, xid)| LedgerRow {
        job,
        epoch,
        purchase,
        note,
        xid,
    });
    history.ledger = booked.collect();
    history.purchases = rows!(base, "select no, job from purchase", (i64, i64))?;
    history.decisions = rows!(base, "select entity, seen, job from decision", (i64, i64, i64))?;
    let balances = rows!(base, "select balance from account order by id", (i64,))?;
    history.balances = balances.into_iter().map(|row| row.0).collect();
    let effects = rows!(base, "select id, state from rowlock.effects", (i64, String))?;
    history.effects = effects
        .into_iter()
        .map(|(job, state)| EffectRow { job, state })
        .collect();
    let moves = format!(
        "select version, to_state, {{ms:changed_at}}, {move_seen} from rowlock.breaker_log where name = '{LINE}' order by version"
    );
    let moves = rows!(base, &moves, (i64, String, i64, i64))?;
    let line = moves.into_iter().map(|(version, to, at_ms, committed_ms)| BreakerMove {
        version,
        to,
        at_ms,
        committed_ms,
    });
    history.line = line.collect();
    let reopened = rows!(base, "select id from rowlock.audit where verb = 'reopen'", (i64,))?;
    history.reopened = reopened.into_iter().map(|row| row.0).collect();
    history.deeds = rows!(base, "select id, verb from rowlock.audit where id <> 0", (i64, String))?;
    Ok(())
}

async fn places(base: &mut Base) -> Result<HashMap<i64, Place>> {
    let mut places = HashMap::new();
    for (table, place) in [
        ("ready", Place::Ready),
        ("waiting", Place::Waiting),
        ("lease", Place::Leased),
        ("case_file", Place::Case),
    ] {
        for (id,) in rows!(base, &format!("select id from rowlock.{table}"), (i64,))? {
            let place = if places.contains_key(&id) {
                Place::Several
            } else {
                place
            };
            places.insert(id, place);
        }
    }
    Ok(places)
}

type JobTuple = (i64, String, String, i64, Option<i64>, i64, Option<String>, i64, i64);

async fn jobs(base: &mut Base, places: &HashMap<i64, Place>, seen: &str) -> Result<Vec<JobRow>> {
    let sql = format!(
        "select id, kind, cast(payload as text), cast(attempts_max as bigint), chain, {{xid}}, in_group, {{ms:created_at}}, {seen} \
         from rowlock.job order by id"
    );
    let rows = rows!(base, &sql, JobTuple)?;
    let read = |(id, kind, payload, attempts_max, chain, xid, group, created_ms, committed_ms): JobTuple| {
        Ok(JobRow {
            id,
            kind,
            payload: serde_json::from_str(&payload).with_context(|| format!("the payload of job {id}"))?,
            attempts_max: i32::try_from(attempts_max)?,
            chain,
            place: places.get(&id).copied().unwrap_or(Place::Nowhere),
            xid,
            group,
            created_ms,
            committed_ms,
        })
    };
    rows.into_iter().map(read).collect()
}

type OutcomeTuple = (i64, i64, i64, i64, String, i64, i64, i64, Option<String>);

async fn outcomes(base: &mut Base) -> Result<Vec<OutcomeRow>> {
    let sql = "select id, epoch, worker, cast(attempt as bigint), outcome, {ms:started_at}, {ms:ended_at}, {xid}, error \
               from rowlock.outcome order by id, epoch";
    let rows = rows!(base, sql, OutcomeTuple)?;
    let read = |(id, epoch, worker, attempt, outcome, started_ms, ended_ms, xid, error): OutcomeTuple| {
        Ok(OutcomeRow {
            id,
            epoch,
            worker,
            attempt: i32::try_from(attempt)?,
            ended: Ended::parse(&outcome).with_context(|| format!("job {id} ended {outcome}"))?,
            started_ms,
            ended_ms,
            xid,
            error,
        })
    };
    rows.into_iter().map(read).collect()
}

/// What one process wrote down.
///
/// # Errors
/// A line other than the last one does not read.
pub fn rower(name: &str, path: &Path) -> Result<RowerLog> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut log = RowerLog {
        name: name.to_owned(),
        ..RowerLog::default()
    };
    let mut open: HashMap<(i64, i64), usize> = HashMap::new();
    let whole = text.ends_with('\n');
    let count = text.lines().count();
    for (at, text) in text.lines().enumerate() {
        match Line::parse(text) {
            Ok(line) => add(&mut log, &mut open, line),
            // A full disk or a kill in the middle of its last write.
            Err(_) if at + 1 == count && !whole => {}
            Err(error) => return Err(error.context(format!("line {} of {}", at + 1, path.display()))),
        }
    }
    Ok(log)
}

fn add(log: &mut RowerLog, open: &mut HashMap<(i64, i64), usize>, line: Line) {
    match line {
        Line::Start { at, id, epoch } => {
            open.insert((id, epoch), log.runs.len());
            let to = None;
            log.runs.push(Run {
                id,
                epoch,
                from: at,
                to,
            });
        }
        Line::End { at, id, epoch } => {
            if let Some(run) = open.remove(&(id, epoch)) {
                log.runs[run].to = Some(at);
            }
        }
        Line::Done { id, epoch } => log.done.push((id, epoch)),
        Line::Lost { id, epoch } => log.lost.push((id, epoch)),
        Line::Resolved { id, epoch, committed } => log.resolved.push((id, epoch, committed)),
        Line::Mishap { what, .. } => *log.counts.entry(what).or_default() += 1,
        Line::Try { order } => log.tried.push(order),
        Line::Confirmed { order, id } => log.confirmed.push((order, id)),
        Line::RolledBack { order } => log.rolled_back.push(order),
        Line::Keyed { slot, id } => log.keyed.push((slot, id)),
        Line::Note { what } => *log.counts.entry(what).or_default() += 1,
    }
}
