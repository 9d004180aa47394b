//! Long poll, and what each message means: a job that is triggered, a job that is enqueued, a case that is kept.
//!
//! A batch is held, and its visibility extended, until the database has said what each message means, however long that
//! takes: an outage of the database must not move messages to the dead-letter queue. A message that the database
//! refuses for good belongs in that queue.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rowlock::{Admin, Enqueued, Triggered, observe::Standing};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    body::{self, Body, Foreign},
    config::Config,
    counts::{Counts, add},
    error::{Error, is_final},
    hold::Hold,
    keep,
    outside::{Incoming, Outside, Pause},
};

/// The longest pause between two polls that failed, and between two tries of the database.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A task that receives.
#[derive(Clone)]
pub(crate) struct Consumer {
    pub(crate) admin: Admin,
    pub(crate) outside: Outside,
    pub(crate) hold: Arc<Hold>,
    pub(crate) config: Arc<Config>,
    pub(crate) counts: Arc<Counts>,
}

/// What a message led to.
enum Meaning {
    /// A job, with its place.
    Job(Standing),
    /// Nothing to wait for.
    Over,
    /// It is to be kept as a case, for this reason.
    Keep(String),
}

impl Consumer {
    /// Receives until `stop`. The hold hands back the messages that are held then.
    pub(crate) async fn run_until(self, stop: CancellationToken) {
        let mut pause = Pause::up_to(PAUSE_MAX);
        while let Some(room) = stop.run_until_cancelled(self.room()).await {
            let asked = Instant::now();
            let poll = self.outside.receive(self.config.visibility, self.config.wait);
            let received = match stop.run_until_cancelled(poll).await {
                // Messages of a cut poll stay hidden until their visibility is over.
                None => return,
                Some(Ok(received)) => received,
                Some(Err(error)) => {
                    add(&self.counts.receive_failures, 1);
                    tracing::warn!("{}", error.whole());
                    stop.run_until_cancelled(tokio::time::sleep(pause.next())).await;
                    continue;
                }
            };
            pause.reset();
            if received.is_empty() && asked.elapsed() < self.config.look {
                // After a poll that does not wait, pause before the next one.
                stop.run_until_cancelled(tokio::time::sleep(self.config.look)).await;
                continue;
            }
            add(&self.counts.received, received.len());
            let mut room = room;
            for message in &received {
                if let Some(permit) = room.split(1) {
                    self.hold.take(message, permit);
                }
            }
            drop(room);
            self.read(received, &stop).await;
        }
    }

    /// Waits until a batch fits, and earlier messages can be deleted.
    async fn room(&self) -> OwnedSemaphorePermit {
        self.hold.calm().await;
        self.hold.room().await
    }

    /// Finds out what each message means, and reports it to the hold.
    async fn read(&self, received: Vec<Incoming>, stop: &CancellationToken) {
        let bodies: Vec<Body> = received.iter().map(|m| body::read(m, &self.config)).collect();
        let mut pause = Pause::up_to(PAUSE_MAX);
        let mut left: Vec<(Incoming, Body)> = received.into_iter().zip(bodies).collect();
        loop {
            match self.read_once(&mut left).await {
                Ok(()) => return,
                Err(error) => {
                    add(&self.counts.database_failures, 1);
                    tracing::warn!(
                        "{}; retrying with {} messages in hand",
                        Error::from(error).whole(),
                        left.len()
                    );
                }
            }
            if stop
                .run_until_cancelled(tokio::time::sleep(pause.next()))
                .await
                .is_none()
            {
                return;
            }
        }
    }

    /// Removes from `left` what has been dealt with. In the order they came, which is what a FIFO queue promises.
    async fn read_once(&self, left: &mut Vec<(Incoming, Body)>) -> rowlock::Result<()> {
        let pointers: Vec<(i64, Uuid)> = left
            .iter()
            .filter_map(|(_, body)| match body {
                Body::Pointer(pointer) => Some((pointer.job, pointer.uid)),
                _ => None,
            })
            .collect();
        let mut said = self.admin.trigger(&pointers).await?.into_iter();
        let mut rest = Vec::new();
        for (message, body) in left.drain(..) {
            match (body, said.len()) {
                (Body::Pointer(_), 1..) => {
                    let meaning = said.next().map_or(Meaning::Over, |said| self.pointed(said));
                    rest.push((message, Err(meaning)));
                }
                (body, _) => rest.push((message, Ok(body))),
            }
        }
        let mut rest = rest.into_iter();
        while let Some((message, body)) = rest.next() {
            let dealt = match &body {
                Ok(body) => self.act(&message, body).await,
                Err(meaning) => self.settle(&message, meaning).await,
            };
            if let Err(error) = dealt {
                if is_final(&error) {
                    // A second try would be refused too, and the messages behind it would wait for ever.
                    tracing::warn!("{}", Error::from(error).whole());
                    self.hold.give_up(&message);
                    continue;
                }
                // An answered pointer is looked up again: its job gives the same answer, or is over.
                let again = |(message, body): (Incoming, Result<Body, Meaning>)| {
                    let body = body.unwrap_or_else(|_| body::read(&message, &self.config));
                    (message, body)
                };
                left.push(again((message, body)));
                left.extend(rest.map(again));
                return Err(error);
            }
        }
        Ok(())
    }

    fn pointed(&self, said: Triggered) -> Meaning {
        let (count, meaning) = match said {
            Triggered::Now(standing) => (&self.counts.triggered, Meaning::Job(standing)),
            Triggered::Already(standing) => (&self.counts.duplicates, Meaning::Job(standing)),
            Triggered::Over(_) => (&self.counts.duplicates, Meaning::Over),
            Triggered::Foreign => {
                let why = "the pointer's job is of another database, or of this one before it was restored";
                (&self.counts.foreign_pointers, Meaning::Keep(why.into()))
            }
            _ => {
                let why = "the pointer's job does not exist: it was never committed, or its retention is over";
                (&self.counts.unknown, Meaning::Keep(why.into()))
            }
        };
        add(count, 1);
        meaning
    }

    async fn act(&self, message: &Incoming, body: &Body) -> rowlock::Result<()> {
        let meaning = match body {
            Body::Malformed(why) => {
                add(&self.counts.malformed, 1);
                Meaning::Keep(why.clone())
            }
            Body::Foreign(job) => self.enqueue(job).await?,
            Body::Pointer(pointer) => {
                let said = self.admin.trigger(&[(pointer.job, pointer.uid)]).await?;
                said.into_iter().next().map_or(Meaning::Over, |said| self.pointed(said))
            }
        };
        self.settle(message, &meaning).await
    }

    async fn enqueue(&self, job: &Foreign) -> rowlock::Result<Meaning> {
        let put = match self.admin.enqueue(job.job()).await {
            Ok(put) => put,
            Err(error @ rowlock::Error::KeyConflict { .. }) => {
                add(&self.counts.conflicts, 1);
                return Ok(Meaning::Keep(error.to_string()));
            }
            Err(error @ (rowlock::Error::Invalid { .. } | rowlock::Error::Encode { .. })) => {
                add(&self.counts.malformed, 1);
                return Ok(Meaning::Keep(error.to_string()));
            }
            Err(error) => return Err(error),
        };
        match &put {
            Enqueued::New(_) => add(&self.counts.enqueued, 1),
            _ => add(&self.counts.duplicates, 1),
        }
        let found = self.admin.observe().standing(&[put.id()]).await?;
        Ok(found.into_iter().next().map_or(Meaning::Over, Meaning::Job))
    }

    async fn settle(&self, message: &Incoming, meaning: &Meaning) -> rowlock::Result<()> {
        match meaning {
            Meaning::Job(standing) => self.hold.follow(message, standing),
            Meaning::Over => self.hold.leave(message),
            Meaning::Keep(why) => {
                keep::keep(&self.admin, &self.outside.url, message, why).await?;
                add(&self.counts.kept, 1);
                self.hold.leave(message);
            }
        }
        Ok(())
    }
}
