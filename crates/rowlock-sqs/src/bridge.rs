//! A bridge: its parts, started together and stopped together.

use std::{sync::Arc, time::Duration};

use aws_sdk_sqs::Client;
use rowlock::Admin;
use tokio::{
    sync::mpsc::{Receiver, channel},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::Config,
    consume::Consumer,
    counts::Counts,
    drain::Drain,
    error::{Error, Result},
    hold::Hold,
    keep,
    outside::Outside,
    relay::{Courier, HINTS_MAX, Relay},
    sent::Sent,
    sweep::Sweep,
};

/// One SQS queue and one database. Any number of processes may run a bridge between the same two.
///
/// ```no_run
/// # async fn run() -> anyhow::Result<()> {
/// use rowlock_sqs::{Bridge, Config, Role};
///
/// let admin = rowlock::Admin::open("sqlite:jobs.db", "rowlock")?;
/// let client = rowlock_sqs::connect(None).await;
/// let mut config = Config::new("https://sqs.eu-west-1.amazonaws.com/123456789012/orders", "orders");
/// config.role = Role::Both;
/// let bridge = Bridge::new(admin, client, config)?;
/// let relay = bridge.relay(); // relay.hint(id) after a commit; what is not hinted at is found by the sweep
/// bridge.run_until(async { _ = tokio::signal::ctrl_c().await }).await?;
/// # drop(relay);
/// # Ok(()) }
/// ```
pub struct Bridge {
    admin: Admin,
    client: Client,
    config: Arc<Config>,
    counts: Arc<Counts>,
    relay: Relay,
    hints: Receiver<i64>,
}

impl std::fmt::Debug for Bridge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bridge").finish_non_exhaustive()
    }
}

impl Bridge {
    /// Checks the settings; no I/O yet.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for a setting that is out of its limits.
    pub fn new(admin: Admin, client: Client, config: Config) -> Result<Bridge> {
        config.check()?;
        let (hinting, hints) = channel(HINTS_MAX);
        Ok(Bridge {
            admin,
            client,
            config: Arc::new(config),
            counts: Arc::default(),
            relay: Relay { hints: hinting },
            hints,
        })
    }

    /// The bridge's numbers, which stay readable while it runs and after.
    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// For producers in this process: names jobs that get a pointer immediately. Used if the bridge's role is to
    /// produce.
    pub fn relay(&self) -> Relay {
        self.relay.clone()
    }

    /// Runs until `stop` resolves. Messages whose work is running then are handed back to SQS, so that another bridge
    /// sees them immediately; their jobs go on. The bridge waits out outages of SQS and of the database.
    ///
    /// # Errors
    /// Before it runs only: [`Error::NoQueue`](crate::Error::NoQueue), or [`Error::Rowlock`](crate::Error::Rowlock)
    /// when the database cannot be reached or its schema does not fit.
    ///
    /// Cancel safety: dropping it is like the death of the process. Messages that it holds come again when their
    /// visibility is over, and nothing is lost.
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send) -> Result<()> {
        self.admin.check_schema().await?;
        let outside = Outside::new(self.client.clone(), &self.config.queue_url);
        outside.check().await?;
        let drained = self
            .config
            .drain_url
            .as_deref()
            .map(|url| Outside::new(self.client.clone(), url));
        if let Some(drained) = &drained {
            drained.check().await?;
        }
        let (stopped, let_go) = (CancellationToken::new(), CancellationToken::new());
        // When they are dropped, both sets end their tasks.
        let (mut parts, mut holding) = (JoinSet::new(), JoinSet::new());
        if self.config.role.consumes() {
            let hold = Arc::new(Hold::new(outside.clone(), self.counts.clone(), &self.config));
            holding.spawn(hold.clone().extend_until(let_go.clone()));
            holding.spawn(hold.clone().look_until(self.admin.clone(), let_go.clone()));
            let consumer = Consumer {
                admin: self.admin.clone(),
                outside: outside.clone(),
                hold,
                config: self.config.clone(),
                counts: self.counts.clone(),
            };
            for _ in 0..self.config.receivers {
                parts.spawn(consumer.clone().run_until(stopped.clone()));
            }
        }
        if self.config.role.produces() {
            let courier = Courier {
                admin: self.admin.clone(),
                outside,
                sent: Arc::new(Sent::new(self.config.grace, self.config.sent_max)),
                counts: self.counts.clone(),
            };
            parts.spawn(Sweep::new(courier.clone(), &self.config).run_until(stopped.clone()));
            parts.spawn(courier.relay_until(self.hints, stopped.clone()));
        }
        parts.spawn(mend_until(self.admin.clone(), self.config.grace, stopped.clone()));
        if let Some(outside) = drained {
            let drain = Drain {
                admin: self.admin,
                outside,
                config: self.config,
                counts: self.counts,
            };
            parts.spawn(drain.run_until(stopped.clone()));
        }
        stop.await;
        stopped.cancel();
        while parts.join_next().await.is_some() {}
        let_go.cancel();
        while holding.join_next().await.is_some() {}
        Ok(())
    }
}

/// Finishes the cases of bridges that died while they made them.
async fn mend_until(admin: Admin, grace: Duration, stop: CancellationToken) {
    loop {
        if let Err(error) = keep::mend(&admin, grace).await {
            tracing::warn!("{}", Error::from(error).whole());
        }
        if stop.run_until_cancelled(tokio::time::sleep(grace)).await.is_none() {
            return;
        }
    }
}
