//! Handlers of kinds that are known by name alone.

use std::time::Duration;

use rowlock::{Admin, Ended, Fail, JobId, NamedJob, NamedKind, RawJob, State, staged};

use super::db::Staged;
use super::{Bed, Note, Running, Seen, until};

async fn enqueue(bed: &Bed, job: NamedJob) -> JobId {
    let admin = Admin::open(&bed.database.queue_url, "rowlock").unwrap();
    admin.enqueue(job).await.unwrap().id()
}

async fn a_kind_known_by_name_gets_its_payload_byte_for_byte(bed: &Bed) {
    let payload = r#"{"b":1.50,  "a":[12345678901234567890], "b":2}"#;
    let id = enqueue(bed, NamedJob::new("resize", payload)).await;
    let seen = Seen::default();
    let jobs = seen.clone();
    let handler = move |cx: Staged, job: RawJob| {
        jobs.push(format!("{} {} {}", job.kind, job.version, job.payload));
        async move {
            let key: String = cx.effect("call", async |key| Ok::<_, Fail>(key.into())).await?;
            cx.done().result(&key).ok()
        }
    };
    let worker = bed.worker().handle(NamedKind::new("resize").staged(handler));
    bed.work(worker, &[id]).await;
    assert_eq!(seen.all(), [format!("resize 1 {payload}")]);
    let job = bed.job(id).await;
    assert_eq!(job.result, Some(format!("{}:call", job.uid).into()));
}

async fn versions_up_to_the_named_one_are_served_and_newer_ones_stay_untouched(bed: &Bed) {
    let mut ids = Vec::new();
    for version in 1..=3 {
        let job = NamedJob::new("grow", "{}").version(version);
        ids.push(enqueue(bed, job).await);
    }
    let handler = |cx: Staged, job: RawJob| async move { cx.done().result(&job.version).ok() };
    let worker = bed.worker().handle(NamedKind::new("grow").version(2).staged(handler));
    bed.work(worker, &ids[..2]).await;
    for (id, version) in ids.iter().zip([1, 2]) {
        assert_eq!(bed.job(*id).await.result, Some(version.into()));
    }
    let newest = bed.job(ids[2]).await;
    assert_eq!((newest.state, newest.epoch), (State::Ready, 0));
}

async fn named_and_typed_kinds_share_a_worker_and_no_kind_has_two_handlers(bed: &Bed) {
    let (typed, named) = (bed.note("typed").await, enqueue(bed, NamedJob::new("named", "1")).await);
    let by_type = |cx: Staged, _: Note| async move { cx.done().ok() };
    let by_name = |cx: Staged, _: RawJob| async move { cx.done().ok() };
    let kind = |name: &str| NamedKind::new(name);
    let both = bed
        .worker()
        .handle(staged(by_type))
        .handle(kind("named").staged(by_name));
    bed.work(both, &[typed, named]).await;
    for (worker, told) in [
        (
            bed.worker()
                .handle(staged(by_type))
                .handle(kind("note").staged(by_name)),
            "kind \"note\" has two handlers; remove one",
        ),
        (
            bed.worker().handle(kind("no name").staged(by_name)),
            "is not a valid name; use 1 to 100 of",
        ),
        (
            bed.worker().handle(kind("named").version(0).staged(by_name)),
            "kind \"named\": version 0 is out of range (1 or more)",
        ),
    ] {
        let refused = worker.run_until(async {}).await.unwrap_err().to_string();
        assert!(refused.contains(told), "{refused}");
    }
}

async fn a_handler_without_a_type_is_cut_at_its_own_time_limit(bed: &Bed) {
    let job = NamedJob::new("slow", "{}").attempts(1);
    let id = enqueue(bed, job).await;
    let kind = NamedKind::new("slow").time_limit(Duration::from_millis(300));
    let handler = |_: Staged, _: RawJob| std::future::pending();
    bed.work(bed.worker().handle(kind.staged(handler)), &[id]).await;
    assert_eq!(bed.ends(id).await, [Ended::Retired]);
}

async fn a_deferral_may_say_why(bed: &Bed) {
    let id = bed.note("later").await;
    let handler = |cx: Staged, _: Note| async move {
        match cx.epoch() {
            1 => Err(Fail::defer(Duration::ZERO).because("asked to wait")),
            2 => Err(Fail::defer(Duration::ZERO)),
            _ => cx.done().ok(),
        }
    };
    bed.work(bed.worker().handle(staged(handler)), &[id]).await;
    assert_eq!(bed.ends(id).await, [Ended::Deferred, Ended::Deferred, Ended::Done]);
    let errors: Vec<_> = bed.attempts(id).await.into_iter().map(|a| a.error).collect();
    assert_eq!(errors, [Some("asked to wait".to_owned()), None, None]);
}

async fn a_handler_can_hand_its_jobs_trace_on(bed: &Bed) {
    let parent = format!("00-{}-{}-01", "4b".repeat(16), "b7".repeat(8));
    let with_state = format!("{parent} vendor=1");
    let seen = Seen::default();
    for trace in [None, Some(parent.clone()), Some(with_state)] {
        let enqueue = bed.rowlock.enqueue_now(Note::new("x"));
        let enqueue = match trace {
            Some(trace) => enqueue.trace(trace),
            None => enqueue,
        };
        let _ = enqueue.await.unwrap();
    }
    let told = seen.clone();
    let handler = move |cx: Staged, _: Note| {
        told.push(format!("{:?} {:?}", cx.traceparent(), cx.tracestate()));
        async move { cx.done().ok() }
    };
    let running = Running::start(bed.single().handle(staged(handler)));
    until("all three", async || seen.all().len() == 3).await;
    running.stop().await;
    let wanted = [
        "None None".to_owned(),
        format!("Some({parent:?}) None"),
        format!("Some({parent:?}) Some(\"vendor=1\")"),
    ];
    assert_eq!(seen.all(), wanted);
}

mod tests {
    super::super::cases!(
        a_kind_known_by_name_gets_its_payload_byte_for_byte,
        versions_up_to_the_named_one_are_served_and_newer_ones_stay_untouched,
        named_and_typed_kinds_share_a_worker_and_no_kind_has_two_handlers,
        a_handler_without_a_type_is_cut_at_its_own_time_limit,
        a_deferral_may_say_why,
        a_handler_can_hand_its_jobs_trace_on,
    );
}
