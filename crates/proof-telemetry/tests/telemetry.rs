//! What workers export by OTLP, against what the database holds: exact while nobody is killed, and never too much.

use std::{collections::HashMap, future::IntoFuture, net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result, anyhow, ensure};
use opentelemetry::{
    Context,
    context::FutureExt,
    trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState},
};
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};
use proof::{
    bed::until,
    scene::{Scene, all_servers, on_each},
    victim::{Moody, Orders, PATIENCE, Plain, Victim},
};
use proof_telemetry::collector::{Collector, attributes};
use rowlock::{Fail, atomic, sqlite};
use rowlock_otel::{Measure, Names, prometheus::Prometheus};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

const VICTIM: &str = env!("CARGO_BIN_EXE_exporter");

const DONE: &str = "select count(*) from rowlock.outcome where outcome = 'done'";

/// What the database says of each counter.
const TRUTH: [(&str, &str); 5] = [
    ("queue.claimed", "select count(*) from rowlock.outcome"),
    ("queue.processed", DONE),
    (
        "queue.failed",
        "select count(*) from rowlock.outcome where outcome in ('retried', 'retired')",
    ),
    (
        "queue.stale_recovered",
        "select count(*) from rowlock.outcome where outcome = 'lost'",
    ),
    ("queue.retired", "select count(*) from rowlock.case_file"),
];

/// A thousand jobs with every kind of end; so many are done in the end, next links included.
async fn thousand(scene: &Scene) -> Result<i64> {
    let moody = |fails, jobs: usize| vec![Moody { fails }; jobs];
    scene.enqueue_all(vec![Plain {}; 700]).await?;
    scene
        .enqueue_all([moody(0, 100), moody(1, 120), moody(2, 40)].concat())
        .await?;
    scene.enqueue_all(moody(9, 40)).await?;
    Ok(700 + 2 * 260)
}

fn orders(scene: &Scene, collector: &Collector) -> Orders {
    Orders {
        otlp: Some(collector.address()),
        // No living worker is declared dead, whatever the machine does.
        ..scene.heirs()
    }
}

/// What one process printed of what a counter counts.
fn printed(victim: &Victim, counter: &str) -> u64 {
    let ended = |words: &[&str]| {
        let settled = victim.events("settled");
        settled
            .iter()
            .filter(|event| words.contains(&event["ended"].as_str().unwrap_or_default()))
            .count() as u64
    };
    let expired = |retired: bool| {
        let expired = victim.events("expired");
        expired
            .iter()
            .filter(|event| !retired || event["retired"] == true)
            .count() as u64
    };
    match counter {
        "queue.claimed" => victim
            .events("claimed")
            .iter()
            .filter_map(|event| event["jobs"].as_u64())
            .sum(),
        "queue.processed" => ended(&["done"]),
        "queue.failed" => ended(&["retried", "retired"]),
        "queue.stale_recovered" => expired(false),
        _ => ended(&["retired"]) + expired(true),
    }
}

async fn all_over(scene: &Scene, done: i64) -> Result<()> {
    scene.until_number(DONE, done, PATIENCE).await;
    scene
        .until_number("select count(*) from rowlock.case_file", 40, PATIENCE)
        .await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn counters_equal_the_database_after_a_thousand_jobs() -> Result<()> {
    let case = "telemetry::counters_equal_the_database_after_a_thousand_jobs";
    on_each(all_servers(), VICTIM, case, |scene| async move {
        let collector = Collector::start().await?;
        let done = thousand(&scene).await?;
        let orders = orders(&scene, &collector);
        let mut victims = [scene.victim(&orders, None)?, scene.victim(&orders, None)?];
        all_over(&scene, done).await?;
        for victim in &mut victims {
            victim.stop().await?;
        }
        for (counter, truth) in TRUTH {
            let (truth, sum) = (scene.number(truth).await?, collector.sum(counter));
            ensure!(
                sum == truth as f64,
                "{counter}: {sum} exported, {truth} in the database"
            );
        }
        // The counterparts, and what only the attributes show.
        let attempts = "select count(*) from rowlock.outcome where outcome in ('done', 'retried', 'retired')";
        let attempts = scene.number(attempts).await? as f64;
        for histogram in ["queue.job_duration_ms", "messaging.process.duration"] {
            let recorded = collector.sum(histogram);
            ensure!(recorded == attempts, "{histogram}: {recorded} of {attempts}");
        }
        ensure!(collector.sum("messaging.client.consumed.messages") == collector.sum("queue.claimed"));
        let of_kind = collector.sum_of("queue.retired", |_, of| {
            of["kind"] == "moody" && of["queue"] == "default"
        });
        ensure!(of_kind == 40.0, "{of_kind} of the kind");
        let failed = collector.sum_of("messaging.process.duration", |_, of| of.contains_key("error.type"));
        ensure!(failed == collector.sum("queue.failed"), "{failed} have an error type");
        let names = collector.names();
        for name in ["queue.depth", "queue.oldest_due_age_s", "queue.wait_ms"] {
            ensure!(names.iter().any(|n| n == name), "{name} is not among {names:?}");
        }
        scene.at_rest().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn killed_workers_take_what_they_have_not_exported_with_them_and_no_more() -> Result<()> {
    let case = "telemetry::killed_workers_take_what_they_have_not_exported_with_them_and_no_more";
    on_each(all_servers(), VICTIM, case, |scene| async move {
        let collector = Collector::start().await?;
        let done = thousand(&scene).await?;
        let heirs = orders(&scene, &collector);
        let dying = Orders {
            lease_ms: scene.orders().lease_ms,
            ..heirs.clone()
        };
        let mut killed = Vec::new();
        for share in [done / 8, done / 4] {
            let mut victim = scene.victim(&dying, None)?;
            until("some of it to be done", PATIENCE, async || {
                (scene.number(DONE).await.ok()? >= share).then_some(())
            })
            .await;
            victim.kill()?;
            killed.push(victim);
        }
        let mut heir = scene.victim(&heirs, None)?;
        all_over(&scene, done).await?;
        heir.stop().await?;

        for (counter, truth) in TRUTH {
            let truth = scene.number(truth).await? as u64;
            let sum = collector.sum(counter) as u64;
            ensure!(sum <= truth, "{counter}: {sum} exported, only {truth} in the database");
            let left = (printed(&heir, counter), collector.sum_in(counter, heir.pid()) as u64);
            ensure!(
                left.0 == left.1,
                "{counter}: {} printed, {} exported by who was not killed",
                left.0,
                left.1
            );
            // A job is printed and counted in the same step; what was committed a moment before the kill may be in
            // neither.
            let (mut unexported, mut printed_in_all) = (0, left.0);
            for victim in &killed {
                let (printed, exported) = (printed(victim, counter), collector.sum_in(counter, victim.pid()) as u64);
                ensure!(exported <= printed, "{counter}: {exported} exported, {printed} printed");
                unexported += printed - exported;
                printed_in_all += printed;
            }
            let untold = truth
                .checked_sub(printed_in_all)
                .context("more printed than happened")?;
            ensure!(
                truth - sum == unexported + untold,
                "{counter}: short by {}, of which {unexported} were printed and {untold} were not",
                truth - sum
            );
            let in_hand = 2 * 200;
            ensure!(untold <= in_hand, "{counter}: {untold} were told by nobody");
        }
        let lost = scene.number(TRUTH[3].1).await?;
        ensure!(lost > 0, "the kills came when nobody held anything");
        let by_heir = (
            printed(&heir, "queue.stale_recovered"),
            collector.sum_in("queue.recovery_ms", heir.pid()),
        );
        ensure!(
            by_heir.0 as f64 == by_heir.1,
            "each recovery has its latency: {by_heir:?}"
        );
        scene.at_rest().await
    })
    .await
}

fn links(span: &Span) -> Vec<(&[u8], &[u8])> {
    span.links
        .iter()
        .map(|link| (&link.trace_id[..], &link.span_id[..]))
        .collect()
}

/// The attributes under their exact names, and the conventions' beside them.
fn says_whose_it_is(span: &Span, id: i64) -> Result<()> {
    let of = attributes(&span.attributes);
    for (name, value) in [
        ("queue", "default"),
        ("job.id", &*id.to_string()),
        ("outcome", "done"),
        ("messaging.system", "rowlock"),
        ("messaging.destination.name", "default"),
    ] {
        ensure!(
            of.get(name).map(|v| &**v) == Some(value),
            "{name} is {:?}",
            of.get(name)
        );
    }
    ensure!(
        of["job.claim_token"].starts_with(&format!("{id}.2.w")),
        "{}",
        of["job.claim_token"]
    );
    ensure!(of["worker"].starts_with("pid "), "{}", of["worker"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_trace_goes_from_the_enqueue_over_both_attempts_to_the_next_link() -> Result<()> {
    let case = "telemetry::a_trace_goes_from_the_enqueue_over_both_attempts_to_the_next_link";
    on_each(all_servers(), VICTIM, case, |scene| async move {
        let collector = Collector::start().await?;
        let (trace, parent) = (TraceId::from_bytes([7; 16]), SpanId::from_bytes([9; 8]));
        let state = TraceState::from_key_value([("shop", "1")])?;
        let caller = SpanContext::new(trace, parent, TraceFlags::SAMPLED, true, state);
        let caller = Context::new().with_remote_span_context(caller);
        // Of this process, which enqueues; the victim installs its own.
        rowlock_otel::install();
        let id = scene.enqueue(Moody { fails: 1 }).with_context(caller).await?;
        let stored = scene
            .text(&format!("select trace from rowlock.job where id = {id}"))
            .await?;
        ensure!(stored == format!("00-{trace}-{parent}-01 shop=1"), "{stored}");
        let mut victim = scene.victim(&orders(&scene, &collector), None)?;
        scene.until_number(DONE, 2, PATIENCE).await;
        victim.stop().await?;

        let spans = collector.spans();
        let by_attempt: HashMap<(String, String), &Span> = spans
            .iter()
            .filter(|span| span.name == "queue.process")
            .map(|span| {
                let of = attributes(&span.attributes);
                ((of["kind"].clone(), of["attempt"].clone()), span)
            })
            .collect();
        let attempt = |kind: &str, attempt: &str| {
            let span = by_attempt.get(&(kind.to_owned(), attempt.to_owned()));
            span.copied()
                .ok_or_else(|| anyhow!("no span of {kind} {attempt}: {:?}", by_attempt.keys()))
        };
        let (first, second, next) = (attempt("moody", "1")?, attempt("moody", "2")?, attempt("follow", "1")?);
        let enqueued = vec![(&[7; 16][..], &[9; 8][..])];
        ensure!(
            links(first) == enqueued && links(second) == enqueued,
            "both attempts come from the enqueue"
        );
        ensure!(
            links(next) == [(&second.trace_id[..], &second.span_id[..])],
            "the next link comes from the attempt that made it"
        );
        let ended = |span: &Span| {
            span.status
                .as_ref()
                .map(|status| (status.code(), status.message.clone()))
        };
        ensure!(
            ended(first) == Some((StatusCode::Error, "upset for the 1. time".into())),
            "{:?}",
            first.status
        );
        ensure!(
            ended(second) == Some((StatusCode::Ok, String::new())),
            "{:?}",
            second.status
        );
        says_whose_it_is(second, id)?;
        scene.at_rest().await
    })
    .await
}

/// What an HTTP server answers to a GET.
async fn get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let ask = format!("GET {path} HTTP/1.0\r\nhost: here\r\n\r\n");
    stream.write_all(ask.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_that_asks_for_one_has_a_page_for_prometheus() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let rowlock = sqlite::Rowlock::open(&format!("sqlite:{}", folder.path().join("jobs.db").display()))?;
    rowlock.migrate().await?;
    rowlock.enqueue_all_now(vec![Moody { fails: 1 }; 3]).await?;
    // The counts of the queue and kind stay for as long as it has a job.
    let later = rowlock.enqueue_now(Moody { fails: 0 }).after(Duration::from_secs(3600));
    ensure!(later.await?.is_new(), "it has no key");
    let page = Prometheus::new()?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(axum::serve(listener, page.router()).into_future());
    let stop = CancellationToken::new();
    let worker = sqlite::Worker::new(&rowlock)
        .queue("default", 1)
        .telemetry(
            page.telemetry()
                .names(Names::Seed)
                .sample_every(Duration::from_millis(100)),
        )
        .handle(atomic(async |cx: sqlite::Ctx<()>, job: Moody, tx: sqlite::Tx| {
            if cx.attempt() <= job.fails {
                return Err(Fail::retry_after(Duration::ZERO, "not yet"));
            }
            tx.done().ok()
        }));
    let told = stop.clone();
    let running = tokio::spawn(worker.run_until(async move { told.cancelled().await }));
    let done = r#"queue_processed_total{kind="moody",queue="default",otel_scope_name="rowlock"} 3"#;
    let text = until("three to be done and the queue to be looked at", PATIENCE, async || {
        let text = get(address, "/metrics").await.ok()?;
        (text.contains(done) && text.contains("queue_depth{")).then_some(text)
    })
    .await;
    stop.cancel();
    running.await??;
    serving.abort();

    for line in [
        r#"queue_failed_total{ended="retried",kind="moody",queue="default",otel_scope_name="rowlock"} 3"#,
        r#"queue_claimed_total{queue="default",otel_scope_name="rowlock"} 6"#,
        r#"queue_job_duration_ms_count{kind="moody",queue="default",otel_scope_name="rowlock"} 6"#,
    ] {
        ensure!(text.contains(line), "{line} is not in:\n{text}");
    }
    ensure!(text.starts_with("HTTP/1.0 200"), "{text}");
    ensure!(
        !text.contains("messaging_"),
        "names were to be the seed's alone:\n{text}"
    );

    let taken = TcpListener::bind(("127.0.0.1", 0)).await?;
    let refused = page
        .serve(taken.local_addr()?)
        .await
        .expect_err("the address is taken")
        .to_string();
    ensure!(
        refused.starts_with(&format!("could not serve metrics at {}", taken.local_addr()?)),
        "{refused}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_has_no_twin_keeps_its_name_under_the_conventions() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let rowlock = sqlite::Rowlock::open(&format!("sqlite:{}", folder.path().join("jobs.db").display()))?;
    rowlock.migrate().await?;
    ensure!(rowlock.enqueue_now(Moody { fails: 1 }).await?.is_new(), "it has no key");
    let page = Prometheus::new()?;
    let retire = async |_: sqlite::Ctx<()>, _: Moody, _: sqlite::Tx| Err(Fail::retire("no"));
    let worker = sqlite::Worker::new(&rowlock)
        .queue("default", 1)
        .telemetry(page.telemetry().names(Names::Semconv))
        .handle(atomic(retire));
    let read = page.clone();
    let counted = async move {
        until("the retirement to be counted", PATIENCE, async || {
            read.text().ok()?.contains("queue_retired_total{").then_some(())
        })
        .await
    };
    worker.run_until(counted).await?;
    let text = page.text()?;
    for there in [
        "queue_failed_total{",
        "messaging_client_consumed_messages_total{",
        "messaging_process_duration_count{",
    ] {
        ensure!(text.contains(there), "{there} is not in:\n{text}");
    }
    for gone in ["queue_claimed_total", "queue_job_duration_ms"] {
        ensure!(!text.contains(gone), "{gone} has a twin:\n{text}");
    }
    Ok(())
}
