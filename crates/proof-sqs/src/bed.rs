//! A fresh database and a fresh SQS queue for one case, with a proxy between the bridge and the queue.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use aws_sdk_sqs::{
    Client,
    config::{BehaviorVersion, Credentials, Region},
    types::{MessageAttributeValue, QueueAttributeName},
};
use rowlock::{Admin, NamedJob, State, observe::JobFilter};
use rowlock_sqs::{Bridge, Config, Counts, Relay, Role};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    Crooked, Emulator,
    crew::{Behaviour, Crew, Handle, QUEUE},
};
use proof::bed::{Database, Server};

/// A client of the emulator at this address.
pub fn client(url: &str) -> Client {
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "tests"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(url);
    Client::from_conf(config.build())
}

/// What became of everything: each job's text with its place and the ends of its attempts, and the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// By payload, with how many jobs have it.
    pub jobs: BTreeMap<String, Vec<(String, Vec<String>)>>,
    /// Sorted.
    pub ledger: Vec<String>,
}

/// One case's place.
pub struct Bed {
    /// The database.
    pub database: Database,
    /// Either database, for tools.
    pub admin: Admin,
    /// The same, for workers.
    pub handle: Handle,
    /// What is between the bridge and the queue.
    pub proxy: Crooked,
    /// Past the proxy.
    pub direct: Client,
    /// The queue.
    pub queue_url: String,
    /// Which emulator, for messages.
    pub label: String,
}

impl Bed {
    /// Makes one.
    ///
    /// # Errors
    /// A server could not be reached.
    pub async fn new(server: &Server, emulator: &Emulator, case: &str, fifo: bool) -> Result<Bed> {
        let mut bed = Bed::without_queue(server, emulator, case).await?;
        bed.queue_url = make_queue(&bed.direct, fifo, &[]).await?;
        Ok(bed)
    }

    /// Makes one whose emulator is not asked for anything.
    ///
    /// # Errors
    /// The database could not be reached.
    pub async fn without_queue(server: &Server, emulator: &Emulator, case: &str) -> Result<Bed> {
        proof::bed::show_log();
        let database = Database::fresh(server, case).await?;
        let admin = Admin::open(&database.queue_url, "rowlock")?;
        let handle = Handle::open(&database.queue_url)?;
        handle.prepare(&create(&database)).await?;
        Ok(Bed {
            admin,
            handle,
            proxy: Crooked::before(emulator).await?,
            direct: client(&emulator.url),
            queue_url: String::new(),
            label: format!("{} on {}", emulator.label, database.label()),
            database,
        })
    }

    /// Another queue beside it.
    ///
    /// # Errors
    /// The emulator refused it.
    pub async fn another_queue(&self, attributes: &[(QueueAttributeName, String)]) -> Result<String> {
        make_queue(&self.direct, false, attributes).await
    }

    /// Quick enough for a case.
    pub fn config(&self) -> Config {
        let mut config = Config::new(&self.queue_url, QUEUE);
        config.role = Role::Both;
        config.kind = Some("note".into());
        config.attempts_max = 3;
        config.visibility = Duration::from_secs(3);
        config.wait = Duration::from_secs(1);
        config.look = Duration::from_millis(50);
        config.sweep = Duration::from_millis(200);
        config.first_after = Duration::from_millis(300);
        config.grace = Duration::from_secs(1);
        config
    }

    /// Starts a bridge through the proxy.
    ///
    /// # Errors
    /// A setting is wrong.
    pub fn bridge(&self, config: Config) -> Result<Bridging> {
        let bridge = Bridge::new(self.admin.clone(), client(&self.proxy.url), config)?;
        let (stop, counts, relay) = (CancellationToken::new(), bridge.counts(), bridge.relay());
        let stopped = stop.clone();
        let task = tokio::spawn(bridge.run_until(async move { stopped.cancelled().await }));
        Ok(Bridging {
            stop,
            counts,
            relay,
            task,
        })
    }

    /// Starts a worker.
    pub fn work(&self, act: Behaviour) -> Crew {
        self.handle.work(8, act)
    }

    /// Enqueues a job; it waits for a pointer, or is due now.
    ///
    /// # Errors
    /// The database refused it.
    pub async fn enqueue(&self, text: &str, on_trigger: bool) -> Result<(i64, Uuid)> {
        let job = NamedJob::new("note", payload(text)).queue(QUEUE).attempts(3);
        let job = if on_trigger { job.on_trigger() } else { job };
        let id = self.admin.enqueue(job).await?.id();
        let job = self.admin.observe().job(id).await?.context("the job")?;
        Ok((id, job.uid))
    }

    /// Puts a message into the queue, past the proxy; its id.
    ///
    /// # Errors
    /// The emulator refused it.
    pub async fn post(&self, body: &str, attributes: &[(&str, &str)], group: Option<&str>) -> Result<String> {
        let mut call = self.direct.send_message().queue_url(&self.queue_url).message_body(body);
        for (name, value) in attributes {
            let value = MessageAttributeValue::builder()
                .data_type("String")
                .string_value(*value);
            call = call.message_attributes(*name, value.build()?);
        }
        if let Some(group) = group {
            call = call
                .message_group_id(group)
                .message_deduplication_id(Uuid::now_v7().to_string());
        }
        Ok(call.send().await?.message_id.unwrap_or_default())
    }

    /// Puts a pointer into the queue, past the proxy.
    ///
    /// # Errors
    /// The emulator refused it.
    pub async fn point(&self, (job, uid): (i64, Uuid)) -> Result<String> {
        let body = serde_json::json!({ "job": job, "uid": uid });
        self.post(&body.to_string(), &[], None).await
    }

    /// How many messages the queue has, hidden ones too.
    ///
    /// # Errors
    /// The emulator refused it.
    pub async fn depth(&self, queue_url: &str) -> Result<i64> {
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        let mut call = self.direct.get_queue_attributes().queue_url(queue_url);
        for name in &names {
            call = call.attribute_names(name.clone());
        }
        let told = call.send().await?.attributes.unwrap_or_default();
        names.iter().try_fold(0, |sum, name| {
            let count: i64 = told.get(name).context("a queue without a depth")?.parse()?;
            Ok(sum + count)
        })
    }

    /// What became of everything.
    ///
    /// # Errors
    /// The database could not be read.
    pub async fn summary(&self) -> Result<Summary> {
        let mut summary = Summary::default();
        let (observe, mut filter) = (self.admin.observe(), JobFilter::new());
        loop {
            let page = observe.jobs(&filter).await?;
            let Some(last) = page.last() else { break };
            filter = filter.below(last.id);
            for job in &page {
                let ends = observe.attempts(job.id).await?;
                let ends = ends.iter().map(|end| end.outcome.as_str().to_owned()).collect();
                let jobs = summary.jobs.entry(job.payload.to_string()).or_default();
                jobs.push((job.state.as_str().to_owned(), ends));
            }
        }
        summary.ledger = self.ledger().await?;
        Ok(summary)
    }

    /// The ledger, sorted.
    ///
    /// # Errors
    /// The database could not be read.
    pub async fn ledger(&self) -> Result<Vec<String>> {
        let mut notes = self.handle.texts(&self.database.url, "select note from ledger").await?;
        notes.sort();
        Ok(notes)
    }

    /// The place of a job.
    ///
    /// # Errors
    /// The database could not be read, or there is no such job.
    pub async fn state(&self, id: i64) -> Result<State> {
        let found = self.admin.observe().standing(&[id]).await?;
        Ok(found.first().context("no such job")?.state)
    }

    /// Waits until the queue is empty, hidden messages too.
    ///
    /// # Panics
    /// When it is not after two minutes.
    pub async fn until_empty(&self) {
        until(&format!("the queue to be empty, {}", self.label), async || {
            self.depth(&self.queue_url).await.is_ok_and(|depth| depth == 0)
        })
        .await;
    }

    /// Takes it down.
    ///
    /// # Errors
    /// A server could not be reached.
    pub async fn remove(self) -> Result<()> {
        self.direct.delete_queue().queue_url(&self.queue_url).send().await?;
        self.database.remove().await
    }
}

/// The payload of a note.
pub fn payload(text: &str) -> String {
    serde_json::json!({ "text": text }).to_string()
}

/// Waits for a state, with a limit.
///
/// # Panics
/// When it has not come after two minutes: an emulator on a busy machine answers ten calls a second.
pub async fn until<F: Future<Output = bool>>(what: &str, mut check: impl FnMut() -> F) {
    proof::bed::until(what, Duration::from_secs(120), || {
        let check = check();
        async move { check.await.then_some(()) }
    })
    .await;
}

/// A bridge at work. Dropped, it is cut off like a process that dies.
pub struct Bridging {
    stop: CancellationToken,
    /// Its numbers.
    pub counts: Arc<Counts>,
    /// For producers.
    pub relay: Relay,
    task: tokio::task::JoinHandle<rowlock_sqs::Result<()>>,
}

impl Bridging {
    /// Stops it in order.
    ///
    /// # Errors
    /// It had not started, or not ended well.
    pub async fn stop(self) -> Result<rowlock_sqs::Count> {
        self.stop.cancel();
        self.task.await??;
        Ok(self.counts.read())
    }

    /// As a process dies: immediately, with everything it holds.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

async fn make_queue(client: &Client, fifo: bool, attributes: &[(QueueAttributeName, String)]) -> Result<String> {
    let end = if fifo { ".fifo" } else { "" };
    let mut call = client
        .create_queue()
        .queue_name(format!("q{:016x}{end}", fastrand::u64(..)));
    if fifo {
        call = call.attributes(QueueAttributeName::FifoQueue, "true");
    }
    for (name, value) in attributes {
        call = call.attributes(name.clone(), value);
    }
    let made = call.send().await.context("the emulator made no queue")?;
    made.queue_url.context("a queue without an address")
}

/// The driver makes no file unless asked to.
fn create(database: &Database) -> String {
    match database.is_sqlite() {
        true => format!("{}?mode=rwc", database.url),
        false => database.url.clone(),
    }
}
