//! The bridge on both emulators and both databases: what each message does, and what outages do not.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use anyhow::Result;
use proof_sqs::{
    bed::{Bed, payload, until},
    crew::{after, at_once},
};
use rowlock::{
    JobId, NamedJob, State,
    observe::{CaseFilter, JobFilter},
    operate::Target,
};
use rowlock_sqs::{Bridge, CASE_KIND, Error, Role};

async fn finished(bed: &Bed, id: JobId) {
    let what = format!("job {id} to be finished, {}", bed.label);
    until(&what, async || {
        bed.state(id).await.is_ok_and(|state| state == State::Finished)
    })
    .await;
}

/// The kept messages: reason and payload.
async fn kept(bed: &Bed) -> Result<Vec<(String, serde_json::Value)>> {
    let cases = bed.admin.observe().cases(&CaseFilter::new().limit(100)).await?;
    let mut kept = Vec::new();
    for case in cases {
        let job = bed.admin.observe().job(case.id).await?.unwrap();
        assert_eq!(job.kind, CASE_KIND);
        kept.push((case.reason, job.payload));
    }
    Ok(kept)
}

async fn a_pointer_triggers_its_job_and_is_deleted(bed: &Bed) -> Result<()> {
    let mut config = bed.config();
    config.role = Role::Consume;
    let (bridge, crew) = (bed.bridge(config)?, bed.work(at_once()));
    let job = bed.enqueue("one", true).await?;
    bed.point(job).await?;
    finished(bed, job.0).await;
    bed.until_empty().await;
    let count = bridge.stop().await?;
    assert_eq!(
        (count.received, count.triggered, count.deleted),
        (1, 1, 1),
        "{}: {count:?}",
        bed.label
    );
    assert_eq!((count.duplicates, count.sent, count.resent), (0, 0, 0), "{count:?}");
    crew.stop().await
}

async fn a_relay_sends_what_was_committed(bed: &Bed) -> Result<()> {
    let mut config = bed.config();
    config.first_after = Duration::from_secs(600);
    config.grace = Duration::from_secs(600);
    let (bridge, crew) = (bed.bridge(config)?, bed.work(at_once()));
    let mut jobs = Vec::new();
    for n in 0..25 {
        jobs.push(bed.enqueue(&format!("{n}"), true).await?.0);
    }
    assert!(jobs.iter().all(|job| bridge.relay.hint(*job)));
    assert!(bridge.relay.hint(999_999), "one that is not there is passed over");
    for job in &jobs {
        finished(bed, *job).await;
    }
    bed.until_empty().await;
    let count = bridge.stop().await?;
    assert_eq!(
        (count.sent, count.resent, count.triggered),
        (25, 0, 25),
        "{}: {count:?}",
        bed.label
    );
    assert_eq!(bed.ledger().await?.len(), 25);
    crew.stop().await
}

async fn a_lost_send_is_found_by_the_sweep(bed: &Bed) -> Result<()> {
    let mut config = bed.config();
    config.grace = Duration::from_millis(300);
    let (bridge, crew) = (bed.bridge(config)?, bed.work(at_once()));
    bed.proxy.faults.drop_send_every.store(2, Relaxed);
    let mut jobs = Vec::new();
    for n in 0..20 {
        jobs.push(bed.enqueue(&format!("{n}"), true).await?.0);
    }
    for job in &jobs {
        finished(bed, *job).await;
    }
    bed.until_empty().await;
    let count = bridge.stop().await?;
    assert!(bed.proxy.faults.dropped.load(Relaxed) >= 10);
    assert!(count.resent >= 10, "{}: {count:?}", bed.label);
    assert_eq!(bed.ledger().await?.len(), 20);
    crew.stop().await
}

async fn a_row_that_nobody_takes_gets_pointers_further_and_further_apart(bed: &Bed) -> Result<()> {
    let job = bed.enqueue("one", false).await?.0;
    let mut config = bed.config();
    config.role = Role::Produce;
    config.grace = Duration::from_millis(300);
    let bridge = bed.bridge(config)?;
    until("two pointers", async || bridge.counts.read().resent >= 1).await;
    let count = bridge.counts.read();
    assert_eq!(count.sent, 1, "{}: {count:?}", bed.label);
    // At 0.3, 0.6, 1.2 and 2.4 seconds, not at every pass of 0.2.
    assert!(count.resent <= 4, "{count:?}");
    bridge.stop().await?;
    let mut config = bed.config();
    config.role = Role::Consume;
    let (bridge, crew) = (bed.bridge(config)?, bed.work(at_once()));
    finished(bed, job).await;
    bed.until_empty().await;
    bridge.stop().await?;
    assert_eq!(bed.ledger().await?.len(), 1);
    crew.stop().await
}

async fn a_foreign_message_is_a_job_under_its_own_key(bed: &Bed) -> Result<()> {
    let (bridge, crew) = (bed.bridge(bed.config())?, bed.work(at_once()));
    let id = bed.post(&payload("plain"), &[], None).await?;
    for _ in 0..3 {
        bed.post(&payload("named"), &[("rowlock-key", "order:7")], None).await?;
    }
    bed.post(
        &payload("kind"),
        &[("rowlock-kind", "note"), ("rowlock-key", "order:8")],
        None,
    )
    .await?;
    until("three jobs done", async || {
        bed.ledger().await.is_ok_and(|l| l.len() == 3)
    })
    .await;
    bed.until_empty().await;
    let count = bridge.stop().await?;
    assert_eq!(
        (count.enqueued, count.duplicates, count.kept),
        (3, 2, 0),
        "{}: {count:?}",
        bed.label
    );
    let own = format!("sqs:{}:{id}", bed.queue_url.rsplit('/').next().unwrap());
    for key in [own.as_str(), "order:7", "order:8"] {
        let filter = JobFilter::new().key(key);
        let jobs = bed.admin.observe().jobs(&filter).await?;
        assert_eq!(jobs.len(), 1, "{key}");
        assert_eq!((jobs[0].queue.as_str(), jobs[0].attempts_max), ("jobs", 3));
    }
    crew.stop().await
}

async fn what_cannot_be_read_or_points_nowhere_is_kept_as_a_case(bed: &Bed) -> Result<()> {
    let job = bed.enqueue("one", true).await?;
    let (bridge, crew) = (bed.bridge(bed.config())?, bed.work(at_once()));
    let elsewhere = uuid::Uuid::now_v7();
    let bodies = [
        "hello, \u{fc}".to_owned(),
        "{\"job\": \"x\", \"uid\": 7}".to_owned(),
        format!("{{\"job\": 999999, \"uid\": \"{elsewhere}\"}}"),
        format!("{{\"job\": {}, \"uid\": \"{elsewhere}\"}}", job.0),
        "{\"text\": \"\\u0000\"}".to_owned(),
        format!("{}{}", "[".repeat(101), "]".repeat(101)),
    ];
    for body in &bodies {
        bed.post(body, &[], None).await?;
    }
    bed.post(&payload("a"), &[("rowlock-key", "same")], None).await?;
    until("the first of the key", async || bridge.counts.read().enqueued == 1).await;
    bed.post(&payload("b"), &[("rowlock-key", "same")], None).await?;
    bed.post(&payload("c"), &[("rowlock-kind", "no such kind")], None)
        .await?;
    until("all kept", async || bridge.counts.read().kept >= 8).await;
    bed.until_empty().await;
    finished(bed, job.0).await;
    let count = bridge.stop().await?;
    let seen = (
        count.malformed,
        count.unknown,
        count.foreign_pointers,
        count.conflicts,
        count.kept,
    );
    assert_eq!(seen, (5, 1, 1, 1, 8), "{}: {count:?}", bed.label);
    let kept = kept(bed).await?;
    assert_eq!(kept.len(), 8);
    for body in &bodies {
        assert!(kept.iter().any(|(_, said)| said["body"] == **body), "{body}");
    }
    let why = |part: &str| kept.iter().filter(|(reason, _)| reason.contains(part)).count();
    assert_eq!(
        (
            why("not JSON"),
            why("another database"),
            why("does not exist"),
            why("NUL")
        ),
        (1, 1, 1, 1),
        "{kept:?}"
    );
    assert!(kept.iter().all(|(_, said)| said["queue_url"] == *bed.queue_url));
    crew.stop().await
}

async fn a_kept_message_that_comes_again_is_one_case(bed: &Bed) -> Result<()> {
    bed.proxy.faults.fail_delete_every.store(1, Relaxed);
    let mut config = bed.config();
    config.visibility = Duration::from_secs(1);
    let bridge = bed.bridge(config)?;
    bed.post("poison", &[], None).await?;
    until("it to be received again", async || bridge.counts.read().received >= 3).await;
    bed.proxy.faults.fail_delete_every.store(0, Relaxed);
    bed.until_empty().await;
    let count = bridge.stop().await?;
    assert!(
        count.left >= 1 && count.delete_failures >= 4,
        "{}: {count:?}",
        bed.label
    );
    assert_eq!(kept(bed).await?.len(), 1);
    Ok(())
}

async fn a_kept_message_that_was_reopened_is_left_alone_when_it_comes_again(bed: &Bed) -> Result<()> {
    bed.proxy.faults.fail_delete_every.store(1, Relaxed);
    let mut config = bed.config();
    config.visibility = Duration::from_secs(1);
    let bridge = bed.bridge(config)?;
    bed.post("poison", &[], None).await?;
    until("it to be kept", async || bridge.counts.read().kept >= 1).await;
    let id = bed.admin.observe().cases(&CaseFilter::new().limit(100)).await?[0].id;
    bed.admin.operate().reopen(id, "tess").await?;
    let before = bridge.counts.read().kept;
    until("it to be kept again", async || bridge.counts.read().kept >= before + 2).await;
    bed.proxy.faults.fail_delete_every.store(0, Relaxed);
    bed.until_empty().await;
    bridge.stop().await?;
    assert_eq!(bed.state(id).await?, State::Ready, "{}", bed.label);
    Ok(())
}

async fn a_bridge_that_died_between_the_two_steps_of_a_case_is_followed(bed: &Bed) -> Result<()> {
    let half = NamedJob::new(CASE_KIND, "{\"body\": \"poison\"}")
        .queue(rowlock_sqs::CASE_QUEUE)
        .on_trigger()
        .key("sqs-case:m");
    let id = bed.admin.enqueue(half).await?.id();
    let mut config = bed.config();
    config.grace = Duration::from_millis(100);
    let bridge = bed.bridge(config)?;
    until("it to be a case", async || {
        bed.state(id).await.is_ok_and(|state| state == State::Case)
    })
    .await;
    bridge.stop().await?;
    Ok(())
}

async fn a_full_hand_lets_go_of_what_nobody_takes(bed: &Bed) -> Result<()> {
    bed.admin.operate().pause(&Target::Queue("jobs".into()), "tess").await?;
    let mut config = bed.config();
    config.held_max = 10;
    config.grace = Duration::from_secs(600);
    let (bridge, crew) = (bed.bridge(config)?, bed.work(at_once()));
    let mut jobs = Vec::new();
    for n in 0..25 {
        let job = bed.enqueue(&format!("{n}"), true).await?;
        bed.point(job).await?;
        jobs.push(job.0);
    }
    until("every pointer to be read", async || {
        bridge.counts.read().triggered == 25
    })
    .await;
    assert!(
        bridge.counts.read().let_go >= 15,
        "{}: {:?}",
        bed.label,
        bridge.counts.read()
    );
    assert_eq!(bed.ledger().await?.len(), 0);
    bed.admin
        .operate()
        .resume(&Target::Queue("jobs".into()), "tess")
        .await?;
    for job in jobs {
        finished(bed, job).await;
    }
    bed.until_empty().await;
    bridge.stop().await?;
    assert_eq!(bed.ledger().await?.len(), 25);
    crew.stop().await
}

async fn throttling_and_an_outage_are_waited_out(bed: &Bed) -> Result<()> {
    let faults = bed.proxy.faults.clone();
    faults.throttle_every.store(3, Relaxed);
    let (bridge, crew) = (bed.bridge(bed.config())?, bed.work(after(Duration::from_millis(20))));
    let mut jobs = Vec::new();
    for n in 0..30 {
        if n == 15 {
            faults.outage.store(true, Relaxed);
        }
        let job = bed.enqueue(&format!("{n}"), true).await?.0;
        bridge.relay.hint(job);
        jobs.push(job);
    }
    until("the outage to be felt", async || {
        let count = bridge.counts.read();
        count.receive_failures >= 2 && count.send_failures >= 1
    })
    .await;
    faults.outage.store(false, Relaxed);
    for job in jobs {
        finished(bed, job).await;
    }
    bed.until_empty().await;
    bridge.stop().await?;
    assert!(faults.throttled.load(Relaxed) > 0);
    assert_eq!(bed.ledger().await?.len(), 30, "{}", bed.label);
    crew.stop().await
}

async fn a_message_is_hidden_while_its_work_runs(bed: &Bed) -> Result<()> {
    let mut config = bed.config();
    config.visibility = Duration::from_secs(2);
    config.role = Role::Consume;
    let (bridge, crew) = (bed.bridge(config.clone())?, bed.work(after(Duration::from_secs(5))));
    let job = bed.enqueue("slow", true).await?;
    bed.point(job).await?;
    finished(bed, job.0).await;
    bed.until_empty().await;
    let count = bridge.stop().await?;
    assert!(count.extended >= 4, "{}: {count:?}", bed.label);
    assert_eq!(
        (count.received, count.deleted),
        (1, 1),
        "{}: hidden for longer than its visibility",
        bed.label
    );
    assert_eq!(bed.ledger().await?, ["slow"]);
    crew.stop().await
}

async fn a_dead_letter_queue_is_drained_into_cases(bed: &Bed) -> Result<()> {
    let drained = bed.another_queue(&[]).await?;
    for body in ["one", "{\"two\": 2}"] {
        let send = bed.direct.send_message().queue_url(&drained).message_body(body);
        send.send().await?;
    }
    let mut config = bed.config();
    config.drain_url = Some(drained.clone());
    let bridge = bed.bridge(config)?;
    until("both to be drained", async || bridge.counts.read().drained == 2).await;
    bridge.stop().await?;
    assert_eq!(bed.depth(&drained).await?, 0);
    let mut bodies: Vec<String> = kept(bed)
        .await?
        .iter()
        .map(|(_, said)| said["body"].to_string())
        .collect();
    bodies.sort();
    assert_eq!(bodies, ["\"one\"", "\"{\\\"two\\\": 2}\""], "{}", bed.label);
    bed.direct.delete_queue().queue_url(&drained).send().await?;
    Ok(())
}

async fn a_queue_that_is_not_there_is_said_so(bed: &Bed) -> Result<()> {
    let mut config = bed.config();
    config.queue_url = bed.queue_url.replace("/q", "/none");
    let bridge = Bridge::new(bed.admin.clone(), bed.direct.clone(), config)?;
    let said = bridge.run_until(std::future::pending()).await.unwrap_err();
    assert!(matches!(said, Error::NoQueue { .. }), "{}: {said:?}", bed.label);
    Ok(())
}

async fn messages_of_a_group_are_jobs_of_a_group_in_their_order(bed: &Bed) -> Result<()> {
    let mut config = bed.config();
    config.role = Role::Consume;
    for n in 0..12 {
        let group = if n % 2 == 0 { "account:1" } else { "an odd # one" };
        bed.post(&payload(&format!("{n:02}")), &[], Some(group)).await?;
    }
    let (bridge, crew) = (bed.bridge(config)?, bed.work(at_once()));
    until("all of them", async || bed.ledger().await.is_ok_and(|l| l.len() == 12)).await;
    bed.until_empty().await;
    let count = bridge.stop().await?;
    assert_eq!(count.enqueued, 12, "{}: {count:?}", bed.label);
    let wrote = "select note from ledger";
    let order = bed.handle.texts(&bed.database.url, wrote).await?;
    for rest in 0..2 {
        let of_group: Vec<u32> = order
            .iter()
            .map(|n| n.parse().unwrap())
            .filter(|n| n % 2 == rest)
            .collect();
        assert!(of_group.is_sorted(), "{order:?}");
    }
    let filter = JobFilter::new().group("account:1");
    assert_eq!(bed.admin.observe().jobs(&filter).await?.len(), 6);
    crew.stop().await
}

async fn pointers_go_to_the_message_group_of_their_group(bed: &Bed) -> Result<()> {
    let mut jobs = Vec::new();
    for n in 0..6 {
        let job = NamedJob::new("note", payload(&format!("{n}")))
            .queue("jobs")
            .on_trigger();
        let job = if n % 2 == 0 { job.group("account:1") } else { job };
        jobs.push(bed.admin.enqueue(job).await?.id());
    }
    let (bridge, crew) = (bed.bridge(bed.config())?, bed.work(at_once()));
    for job in jobs {
        finished(bed, job).await;
    }
    bed.until_empty().await;
    let count = bridge.stop().await?;
    assert!(count.triggered == 6 && count.sent == 6, "{}: {count:?}", bed.label);
    assert_eq!(bed.ledger().await?, ["0", "1", "2", "3", "4", "5"]);
    crew.stop().await
}

mod tests {
    crate::common::cases!(
        a_pointer_triggers_its_job_and_is_deleted,
        a_relay_sends_what_was_committed,
        a_lost_send_is_found_by_the_sweep,
        a_row_that_nobody_takes_gets_pointers_further_and_further_apart,
        a_foreign_message_is_a_job_under_its_own_key,
        what_cannot_be_read_or_points_nowhere_is_kept_as_a_case,
        a_kept_message_that_comes_again_is_one_case,
        a_kept_message_that_was_reopened_is_left_alone_when_it_comes_again,
        a_bridge_that_died_between_the_two_steps_of_a_case_is_followed,
        a_full_hand_lets_go_of_what_nobody_takes,
        throttling_and_an_outage_are_waited_out,
        a_message_is_hidden_while_its_work_runs,
        a_dead_letter_queue_is_drained_into_cases,
        a_queue_that_is_not_there_is_said_so;
        fifo:
        messages_of_a_group_are_jobs_of_a_group_in_their_order,
        pointers_go_to_the_message_group_of_their_group,
    );
}
