//! The contract: whatever SQS does, what is left in the end is what a run without SQS leaves.
//!
//! Every case runs its jobs twice: in a separate database without any external queue, and through the bridge with SQS
//! at its worst. The places of the jobs, the end of each attempt, and the ledger must be equal.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use anyhow::Result;
use proof::bed::sqlite_server;
use proof_sqs::{
    bed::{Bed, Summary, payload, until},
    crew::{Act, Behaviour, after, at_once, by},
};
use rowlock::State;
use rowlock_sqs::{CASE_KIND, Config, Role};

/// What the jobs leave without SQS.
async fn without(bed: &Bed, texts: &[&str], act: Behaviour) -> Result<Summary> {
    let nowhere = proof_sqs::Emulator {
        label: "none",
        url: bed.proxy.url.clone(),
    };
    let plain = Bed::without_queue(&sqlite_server()[0], &nowhere, "sqs::without").await?;
    let crew = plain.work(act);
    for text in texts {
        plain.enqueue(text, false).await?;
    }
    settled(&plain, texts.len()).await;
    crew.stop().await?;
    let summary = plain.summary().await?;
    plain.database.remove().await?;
    Ok(summary)
}

/// Every note is finished or a case.
async fn settled(bed: &Bed, jobs: usize) {
    until(&format!("{jobs} jobs to stand still, {}", bed.label), async || {
        let Ok(summary) = bed.summary().await else { return false };
        let notes = summary.jobs.iter().filter(|(payload, _)| payload.contains("\"text\""));
        let still: Vec<_> = notes.flat_map(|(_, jobs)| jobs).collect();
        still.len() == jobs && still.iter().all(|(state, _)| state == "finished" || state == "case")
    })
    .await;
}

fn consuming(bed: &Bed) -> Config {
    let mut config = bed.config();
    config.role = Role::Consume;
    config.visibility = Duration::from_secs(1);
    config
}

async fn pointed(bed: &Bed, texts: &[&str]) -> Result<Vec<(i64, uuid::Uuid)>> {
    let mut jobs = Vec::new();
    for text in texts {
        let job = bed.enqueue(text, true).await?;
        bed.point(job).await?;
        jobs.push(job);
    }
    Ok(jobs)
}

async fn the_same_message_twice_at_once_is_one_effect(bed: &Bed) -> Result<()> {
    let expected = without(bed, &["one"], after(Duration::from_millis(300))).await?;
    let crew = bed.work(after(Duration::from_millis(300)));
    // Two bridges, and every receive is answered twice.
    bed.proxy.faults.again_every.store(2, Relaxed);
    let bridges = [bed.bridge(consuming(bed))?, bed.bridge(consuming(bed))?];
    let job = bed.enqueue("one", true).await?;
    for _ in 0..4 {
        bed.point(job).await?;
    }
    settled(bed, 1).await;
    bed.until_empty().await;
    let (mut triggered, mut duplicates) = (0, 0);
    for bridge in bridges {
        let count = bridge.stop().await?;
        triggered += count.triggered;
        duplicates += count.duplicates;
    }
    assert_eq!(triggered, 1, "{}", bed.label);
    assert!(duplicates >= 3, "{duplicates}, {}", bed.label);
    assert_eq!(bed.summary().await?, expected, "{}", bed.label);
    crew.stop().await
}

async fn a_crash_before_the_delete_changes_nothing(bed: &Bed) -> Result<()> {
    let expected = without(bed, &["one", "two"], at_once()).await?;
    let crew = bed.work(at_once());
    bed.proxy.faults.fail_delete_every.store(1, Relaxed);
    let bridge = bed.bridge(consuming(bed))?;
    pointed(bed, &["one"]).await?;
    bed.post(&payload("two"), &[], None).await?;
    settled(bed, 2).await;
    until("a delete to fail", async || bridge.counts.read().delete_failures > 0).await;
    bridge.kill().await;
    bed.proxy.faults.fail_delete_every.store(0, Relaxed);
    let second = bed.bridge(consuming(bed))?;
    bed.until_empty().await;
    let count = second.stop().await?;
    assert_eq!((count.triggered, count.enqueued), (0, 0), "{}: {count:?}", bed.label);
    assert_eq!(count.duplicates, 2, "{}: {count:?}", bed.label);
    assert_eq!(bed.summary().await?, expected, "{}", bed.label);
    crew.stop().await
}

async fn a_visibility_that_ends_while_the_handler_runs_changes_nothing(bed: &Bed) -> Result<()> {
    let slow = || after(Duration::from_millis(2500));
    let expected = without(bed, &["one", "two"], slow()).await?;
    let crew = bed.work(slow());
    bed.proxy.faults.no_extension.store(true, Relaxed);
    let bridge = bed.bridge(consuming(bed))?;
    pointed(bed, &["one", "two"]).await?;
    settled(bed, 2).await;
    bed.until_empty().await;
    let count = bridge.stop().await?;
    assert!(count.received > 2 && count.duplicates > 0, "{}: {count:?}", bed.label);
    assert_eq!(bed.summary().await?, expected, "{}", bed.label);
    crew.stop().await
}

async fn failing_deletes_change_nothing(bed: &Bed) -> Result<()> {
    let texts = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"];
    let expected = without(bed, &texts, at_once()).await?;
    let crew = bed.work(at_once());
    bed.proxy.faults.fail_delete_every.store(2, Relaxed);
    let bridge = bed.bridge(consuming(bed))?;
    pointed(bed, &texts).await?;
    settled(bed, texts.len()).await;
    bed.until_empty().await;
    let count = bridge.stop().await?;
    assert!(count.delete_failures > 0, "{}: {count:?}", bed.label);
    assert_eq!(bed.summary().await?, expected, "{}", bed.label);
    crew.stop().await
}

async fn poison_among_the_messages_changes_nothing(bed: &Bed) -> Result<()> {
    let texts = ["1", "2", "3"];
    let expected = without(bed, &texts, at_once()).await?;
    let crew = bed.work(at_once());
    let bridge = bed.bridge(consuming(bed))?;
    for poison in ["", "{", "\u{1f4a3}", "{\"job\": 1}", "{\"job\": [], \"uid\": {}}"] {
        // SQS takes no empty body.
        let poison = if poison.is_empty() { " " } else { poison };
        let attributes: &[(&str, &str)] = match poison.starts_with("{\"job\": 1") {
            // JSON, but of a kind that cannot be.
            true => &[("rowlock-kind", "not a kind!")],
            false => &[],
        };
        bed.post(poison, attributes, None).await?;
    }
    pointed(bed, &texts).await?;
    settled(bed, texts.len()).await;
    bed.until_empty().await;
    let count = bridge.stop().await?;
    assert_eq!((count.malformed, count.kept), (5, 5), "{}: {count:?}", bed.label);
    let mut summary = bed.summary().await?;
    let poison = |payload: &String, _: &mut _| payload.contains("message_id");
    let kept: Vec<_> = summary.jobs.extract_if(.., poison).collect();
    assert_eq!(kept.len(), 5);
    assert!(
        kept.iter().all(|(_, jobs)| jobs[0].0 == State::Case.as_str()),
        "{kept:?}"
    );
    assert_eq!(
        bed.admin
            .observe()
            .cases(10)
            .await?
            .iter()
            .filter(|case| case.kind == CASE_KIND)
            .count(),
        5
    );
    assert_eq!(summary, expected, "{}", bed.label);
    crew.stop().await
}

fn troubled() -> Behaviour {
    by(|text, attempt| match text.as_bytes()[0] {
        b'r' if attempt < 3 => Act::Retry,
        b'x' => Act::Retire,
        b'f' => Act::Retry,
        _ => Act::Done,
    })
}

async fn failures_are_the_rows_own_and_the_message_is_deleted_at_once(bed: &Bed) -> Result<()> {
    let texts = ["d1", "r1", "x1", "f1", "d2", "r2"];
    let expected = without(bed, &texts, troubled()).await?;
    let crew = bed.work(troubled());
    let bridge = bed.bridge(consuming(bed))?;
    pointed(bed, &texts).await?;
    settled(bed, texts.len()).await;
    bed.until_empty().await;
    let count = bridge.stop().await?;
    assert_eq!((count.triggered, count.deleted), (6, 6), "{}: {count:?}", bed.label);
    assert_eq!(count.duplicates, 0, "a retry needs no second message: {count:?}");
    assert_eq!(bed.summary().await?, expected, "{}", bed.label);
    crew.stop().await
}

async fn everything_at_once_changes_nothing(bed: &Bed) -> Result<()> {
    let texts: Vec<String> = (0..30)
        .map(|n| format!("{}{n}", ["d", "r", "x", "d", "d"][n % 5]))
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let expected = without(bed, &texts, troubled()).await?;
    let crew = bed.work(troubled());
    let faults = &bed.proxy.faults;
    faults.copies.store(3, Relaxed);
    faults.drop_send_every.store(10, Relaxed);
    faults.fail_delete_every.store(5, Relaxed);
    faults.throttle_every.store(11, Relaxed);
    faults.shuffle.store(true, Relaxed);
    faults.no_extension.store(true, Relaxed);
    let mut config = bed.config();
    config.visibility = Duration::from_secs(1);
    // Later than a slow emulator takes for all of them, or each is sent again in three more copies.
    config.grace = Duration::from_secs(3);
    let bridge = bed.bridge(config)?;
    for text in &texts {
        bed.enqueue(text, true).await?;
    }
    settled(bed, texts.len()).await;
    faults.shuffle.store(false, Relaxed);
    bed.until_empty().await;
    let count = bridge.stop().await?;
    assert!(
        count.duplicates > 0 && faults.dropped.load(Relaxed) > 0,
        "{}: {count:?}",
        bed.label
    );
    assert_eq!(bed.summary().await?, expected, "{}", bed.label);
    crew.stop().await
}

mod tests {
    crate::common::cases!(
        the_same_message_twice_at_once_is_one_effect,
        a_crash_before_the_delete_changes_nothing,
        a_visibility_that_ends_while_the_handler_runs_changes_nothing,
        failing_deletes_change_nothing,
        poison_among_the_messages_changes_nothing,
        failures_are_the_rows_own_and_the_message_is_deleted_at_once,
        everything_at_once_changes_nothing;
        fifo:
    );
}
