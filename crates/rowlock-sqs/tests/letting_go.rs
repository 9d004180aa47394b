//! A message that is not needed any more is deleted, whichever bridge held it.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use anyhow::Result;
use proof_sqs::{
    bed::{Bed, payload, until},
    crew::{after, at_once},
};
use rowlock::{NamedJob, State, operate::Target};
use rowlock_sqs::Role;

/// Deployed again and again it would come to the dead-letter queue, and the row has all it needs.
async fn a_message_whose_job_runs_is_deleted_at_a_stop(bed: &Bed) -> Result<()> {
    let mut config = bed.config();
    config.role = Role::Consume;
    let (bridge, crew) = (bed.bridge(config)?, bed.work(after(Duration::from_secs(5))));
    let job = bed.enqueue("slow", true).await?;
    bed.point(job).await?;
    until("it to run", async || {
        bed.state(job.0).await.is_ok_and(|state| state == State::Leased)
    })
    .await;
    let count = bridge.stop().await?;
    assert_eq!((count.deleted, count.left), (1, 0), "{}: {count:?}", bed.label);
    assert_eq!(bed.depth(&bed.queue_url).await?, 0, "{}", bed.label);
    assert_eq!(bed.state(job.0).await?, State::Leased, "{}: it goes on", bed.label);
    until("it to be done", async || {
        bed.ledger().await.is_ok_and(|ledger| ledger == ["slow"])
    })
    .await;
    crew.stop().await
}

/// It would hold up its message group until it is let go of.
async fn a_message_whose_job_is_put_off_is_deleted(bed: &Bed) -> Result<()> {
    let operate = bed.admin.operate();
    assert!(operate.pause(&Target::kind("note"), "ann").await?);
    let mut config = bed.config();
    config.role = Role::Consume;
    let bridge = bed.bridge(config)?;
    let job = bed.enqueue("later", true).await?;
    bed.point(job).await?;
    until("it to be in hand", async || bridge.counts.read().extended >= 2).await;
    assert_eq!(
        bridge.counts.read().deleted,
        0,
        "{}: its job may start any moment",
        bed.label
    );
    operate.delay(job.0, "2100-01-01T00:00:00Z".parse()?, "ann").await?;
    bed.until_empty().await;
    let count = bridge.stop().await?;
    assert_eq!((count.received, count.deleted), (1, 1), "{}: {count:?}", bed.label);
    Ok(())
}

/// Only what has no job is a person's to decide on.
async fn a_drained_message_whose_job_is_here_makes_no_case(bed: &Bed) -> Result<()> {
    let drained = bed.another_queue(&[]).await?;
    let job = bed.enqueue("one", false).await?;
    let waits = bed.enqueue("two", true).await?;
    let send = async |body: String| {
        let send = bed.direct.send_message().queue_url(&drained).message_body(body);
        send.send().await
    };
    let pointer = |(job, uid): (i64, uuid::Uuid)| serde_json::json!({ "job": job, "uid": uid }).to_string();
    send(pointer(job)).await?;
    let lost = send(payload("three")).await?.message_id.unwrap();
    // The same message, as it came to the queue in front of it.
    let name = bed.queue_url.rsplit('/').next().unwrap();
    let known = NamedJob::new("note", payload("three"))
        .queue("jobs")
        .key(format!("sqs:{name}:{lost}"));
    assert!(bed.admin.enqueue(known).await?.is_new());
    send(pointer(waits)).await?;
    send(payload("four")).await?;
    let mut config = bed.config();
    config.role = Role::Consume;
    config.drain_url = Some(drained.clone());
    let bridge = bed.bridge(config)?;
    until("the queue to be drained", async || {
        bed.depth(&drained).await.is_ok_and(|depth| depth == 0)
    })
    .await;
    let count = bridge.stop().await?;
    assert_eq!((count.drained, count.duplicates), (2, 2), "{}: {count:?}", bed.label);
    let cases = bed.admin.observe().cases(10).await?;
    assert_eq!(
        cases.len(),
        2,
        "{}: one waits for its pointer, one never came",
        bed.label
    );
    bed.direct.delete_queue().queue_url(&drained).send().await?;
    Ok(())
}

/// Nothing is received over and over while nothing can be deleted.
async fn receivers_wait_while_no_delete_succeeds(bed: &Bed) -> Result<()> {
    let crew = bed.work(at_once());
    let job = bed.enqueue("one", false).await?;
    until("it to be done", async || {
        bed.state(job.0).await.is_ok_and(|state| state == State::Finished)
    })
    .await;
    bed.proxy.faults.fail_delete_every.store(1, Relaxed);
    let mut config = bed.config();
    (config.role, config.wait, config.look) = (Role::Consume, Duration::ZERO, Duration::from_millis(10));
    let bridge = bed.bridge(config)?;
    bed.point(job).await?;
    // Each failure doubles the pause, from a tenth of a second on.
    let begun = std::time::Instant::now();
    until("seven deletes to fail", async || {
        bridge.counts.read().delete_failures >= 7
    })
    .await;
    assert!(begun.elapsed() > Duration::from_secs(1), "{:?}", begun.elapsed());
    bed.proxy.faults.fail_delete_every.store(0, Relaxed);
    bed.until_empty().await;
    bridge.stop().await?;
    crew.stop().await
}

mod tests {
    crate::common::cases!(
        a_message_whose_job_is_put_off_is_deleted,
        a_drained_message_whose_job_is_here_makes_no_case,
        receivers_wait_while_no_delete_succeeds,
        a_message_whose_job_runs_is_deleted_at_a_stop;
        fifo:
    );
}
