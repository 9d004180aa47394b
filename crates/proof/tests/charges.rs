//! Two thousand charges at a payment provider in a separate process, while workers are killed with SIGKILL at random
//! *and* replies are lost. The provider's log says what was charged; nothing else is asked.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use proof::{
    scene::{Scene, all_servers, on_each},
    till::{Log, Rules, Till},
    victim::{Charge, Orders, PATIENCE, Victim},
};
use rowlock::{
    Ended, State,
    effect::{EffectFilter, EffectState, EffectView, Resolution},
    observe::{JobFilter, JobView},
};

const VICTIM: &str = env!("CARGO_BIN_EXE_victim");
const TILL: &str = env!("CARGO_BIN_EXE_till");

const CHARGES: i64 = 2_000;
const KILLS: usize = 30;

/// A provider's bad day.
fn rules(scene: &Scene, seed: u64) -> Rules {
    Rules {
        log: scene.folder().join("till.log"),
        seed,
        honours_keys: false,
        drops: 5,
        misses: 3,
        refuses: 3,
    }
}

fn victims(scene: &Scene, till: &Till) -> Orders {
    Orders {
        till: Some(till.address),
        concurrency: 6,
        prefetch: Some(2),
        quiet: true,
        ..scene.orders()
    }
}

/// Works through everything with three workers. A random one is killed again and again, and replaced immediately.
async fn charge_all(scene: &Scene, till: &Till, park: bool, seed: u64) -> Result<()> {
    let jobs = (1..=CHARGES).map(|order| Charge { order, park });
    scene.enqueue_all(jobs.collect()).await?;
    let mut random = fastrand::Rng::with_seed(seed);
    let orders = victims(scene, till);
    let mut victims: Vec<Victim> = (0..3).map(|_| scene.victim(&orders, None)).collect::<Result<_>>()?;
    for _ in 0..KILLS {
        tokio::time::sleep(Duration::from_millis(random.u64(50..450))).await;
        let unlucky = random.usize(0..victims.len());
        victims[unlucky].kill()?;
        victims[unlucky] = scene.victim(&orders, None)?;
    }
    at_an_end(scene).await;
    for victim in &mut victims {
        victim.stop().await?;
    }
    Ok(())
}

/// Nothing waits and nothing runs.
async fn at_an_end(scene: &Scene) {
    let open = "select (select count(*) from rowlock.ready) + (select count(*) from rowlock.lease)";
    scene.until_number(open, 0, PATIENCE * 2).await;
}

/// Every job by its order.
async fn jobs(scene: &Scene) -> Result<HashMap<i64, JobView>> {
    let all = JobFilter::new().limit(2 * CHARGES as u32);
    let mut jobs = HashMap::new();
    for job in scene.observe().jobs(&all).await? {
        let order = job.payload["order"].as_i64().context("a charge has an order")?;
        ensure!(jobs.insert(order, job).is_none(), "order {order} has two jobs");
    }
    ensure!(jobs.len() as i64 == CHARGES, "{} jobs", jobs.len());
    Ok(jobs)
}

/// The effects in doubt, by their job.
async fn doubts(scene: &Scene) -> Result<HashMap<i64, EffectView>> {
    let doubtful = EffectFilter::new().doubtful().limit(2 * CHARGES as u32);
    let effects = scene.observe().effects(&doubtful).await?;
    Ok(effects.into_iter().map(|effect| (effect.id, effect)).collect())
}

/// The receipts that the application noted, by job.
async fn noted(scene: &Scene) -> Result<HashMap<i64, Vec<i64>>> {
    let mut noted: HashMap<i64, Vec<i64>> = HashMap::new();
    for (job, receipt) in scene.ledger().await? {
        noted.entry(job).or_default().push(receipt.parse()?);
    }
    Ok(noted)
}

/// Done, charged once, and what was noted is what the provider said.
fn charged_once(order: i64, job: &JobView, log: &Log, noted: &HashMap<i64, Vec<i64>>) -> Result<()> {
    let (receipts, noted) = (log.of(order), noted.get(&job.id).map(Vec::as_slice).unwrap_or_default());
    ensure!(receipts.len() == 1, "order {order} has receipts {receipts:?}");
    ensure!(
        noted == receipts,
        "order {order} has receipts {receipts:?}, and noted {noted:?}"
    );
    let done = job.state == State::Finished && job.last_outcome == Some(Ended::Done);
    ensure!(
        done,
        "order {order} is charged, and its job {:?} {:?}",
        job.state,
        job.last_outcome
    );
    Ok(())
}

async fn attempts_lost(scene: &Scene) -> Result<i64> {
    let lost = scene
        .number("select count(*) from rowlock.outcome where outcome = 'lost'")
        .await?;
    ensure!(lost >= 5, "only {lost} attempts were lost: the pressure was too low");
    Ok(lost)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn charges_happen_exactly_once_where_keys_are_honoured() -> Result<()> {
    let case = "charges::charges_happen_exactly_once_where_keys_are_honoured";
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    on_each(all_servers(), VICTIM, case, |scene| async move {
        let rules = Rules {
            honours_keys: true,
            ..rules(&scene, seed)
        };
        let till = Till::start(TILL, &rules)?;
        charge_all(&scene, &till, false, seed).await?;
        let log = till.close()?;

        let (jobs, noted) = (jobs(&scene).await?, noted(&scene).await?);
        for order in 1..=CHARGES {
            charged_once(order, &jobs[&order], &log, &noted)?;
        }
        ensure!(
            log.receipts.len() as i64 == CHARGES,
            "an order that nobody placed was charged"
        );
        ensure!(doubts(&scene).await?.is_empty(), "a doubt is left");
        let (lost, dropped) = (attempts_lost(&scene).await?, log.dropped.len());
        println!(
            "{}: {lost} attempts lost, {dropped} replies dropped, {} repeats suppressed",
            scene.database.label(),
            log.repeats
        );
        ensure!(dropped >= 50 && log.repeats >= dropped, "the pressure was too low");
        scene.at_rest().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn charges_happen_at_most_once_where_keys_are_ignored_and_every_doubt_is_a_case() -> Result<()> {
    let case = "charges::charges_happen_at_most_once_where_keys_are_ignored_and_every_doubt_is_a_case";
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    on_each(all_servers(), VICTIM, case, |scene| async move {
        let till = Till::start(TILL, &rules(&scene, seed))?;
        charge_all(&scene, &till, true, seed).await?;
        let log = till.close()?;

        let cases = every_doubt_is_a_case(&scene, &log).await?;
        let charged = cases.iter().filter(|order| !log.of(**order).is_empty()).count();
        let (lost, dropped) = (attempts_lost(&scene).await?, log.dropped.len());
        println!(
            "{}: {lost} attempts lost, {dropped} replies dropped, {} cases, of which {charged} were charged",
            scene.database.label(),
            cases.len()
        );
        ensure!(
            dropped >= 50 && cases.len() > dropped && cases.len() > charged,
            "the pressure was too low"
        );
        scene.at_rest().await?;
        resolved_by_its_log_every_order_is_charged_once(&scene, log, cases).await
    })
    .await
}

/// Each order is charged once and done, or it is a case that shows its open intent; the orders of the cases.
async fn every_doubt_is_a_case(scene: &Scene, log: &Log) -> Result<HashSet<i64>> {
    let (jobs, noted, mut doubts) = (jobs(scene).await?, noted(scene).await?, doubts(scene).await?);
    let cases = scene.observe().cases(2 * CHARGES).await?;
    let mut cases: HashMap<i64, _> = cases.into_iter().map(|case| (case.id, case)).collect();
    let mut parked = HashSet::new();
    for order in 1..=CHARGES {
        let job = &jobs[&order];
        ensure!(
            log.of(order).len() <= 1,
            "order {order} was charged {:?}",
            log.of(order)
        );
        let Some(case) = cases.remove(&job.id) else {
            charged_once(order, job, log, &noted)?;
            continue;
        };
        parked.insert(order);
        let effect = doubts.remove(&job.id);
        let effect =
            effect.with_context(|| format!("order {order} is a case, but shows no intent: {}", case.reason))?;
        ensure!(
            effect.state == EffectState::Uncertain,
            "order {order} is {:?}",
            effect.state
        );
        for part in [
            format!("effect {} \"charge\"", effect.no),
            effect.key.clone(),
            "in doubt".into(),
        ] {
            ensure!(
                case.reason.contains(&part),
                "order {order}: no {part:?} in {}",
                case.reason
            );
        }
        ensure!(!noted.contains_key(&job.id), "order {order} is in doubt, and yet noted");
    }
    ensure!(cases.is_empty(), "cases of nobody: {cases:?}");
    ensure!(doubts.is_empty(), "doubts that are no case: {doubts:?}");
    ensure!(
        log.receipts.keys().all(|order| jobs.contains_key(order)),
        "a charge for nobody"
    );
    let hidden: Vec<_> = log.dropped.iter().filter(|order| !parked.contains(order)).collect();
    ensure!(
        hidden.is_empty(),
        "orders whose reply was lost, and no case: {hidden:?}"
    );
    Ok(parked)
}

/// A person looks each doubt up in the provider's log and says what happened; then the cases go on, at a provider that
/// works today, and both logs together hold one charge per order.
async fn resolved_by_its_log_every_order_is_charged_once(
    scene: &Scene,
    mut log: Log,
    cases: HashSet<i64>,
) -> Result<()> {
    let (before, doubts) = (jobs(scene).await?, doubts(scene).await?);
    for order in cases {
        let job = before[&order].id;
        let resolution = match log.of(order) {
            [receipt] => Resolution::Happened((*receipt).into()),
            _ => Resolution::NotHappened,
        };
        scene
            .operate()
            .resolve_effect(doubts[&job].no, resolution, "proof")
            .await?;
        scene.operate().reopen(job, "proof").await?;
    }
    let good = Rules {
        log: scene.folder().join("another.log"),
        drops: 0,
        misses: 0,
        refuses: 0,
        ..rules(scene, 0)
    };
    let till = Till::start(TILL, &good)?;
    let mut victim = scene.victim(&victims(scene, &till), None)?;
    at_an_end(scene).await;
    victim.stop().await?;
    for (order, receipts) in till.close()?.receipts {
        log.receipts.entry(order).or_default().extend(receipts);
    }
    let (after, noted) = (jobs(scene).await?, noted(scene).await?);
    for order in 1..=CHARGES {
        charged_once(order, &after[&order], &log, &noted)?;
    }
    scene.at_rest().await
}
