//! What handlers reach: the log, the tills, and the ways to go wrong.

use std::{net::SocketAddr, sync::Arc};

use proof::chaos::{
    jobs::Mishap,
    log::{Line, Log, now_ms},
    orders::RowerOrders,
};
use rowlock::{Attempt, Ended, Event, Fail};

pub(crate) struct Tools {
    pub(crate) log: Arc<Log>,
    pub(crate) limited: bool,
    till: SocketAddr,
    blind_till: SocketAddr,
}

impl Tools {
    pub(crate) fn new(orders: &RowerOrders, limited: bool) -> anyhow::Result<Tools> {
        Ok(Tools {
            log: Arc::new(Log::open(&orders.log)?),
            limited,
            till: orders.till,
            blind_till: orders.blind_till,
        })
    }

    /// Notes that a handler has started; when what it gives is dropped, that it has ended.
    pub(crate) fn running(&self, attempt: &Attempt) -> Running {
        let (id, epoch) = (i64::from(attempt.id()), attempt.epoch());
        self.log.write(&Line::Start {
            at: now_ms(),
            id,
            epoch,
        });
        Running {
            log: self.log.clone(),
            id,
            epoch,
        }
    }

    /// Charges an order at one of the tills.
    pub(crate) async fn charge(&self, key: &str, order: i64, park: bool) -> Result<i64, Fail> {
        let till = if park { self.blind_till } else { self.till };
        proof::till::charge(till, key, order).await
    }

    /// Goes wrong, if this is the first attempt.
    pub(crate) async fn mishap(&self, attempt: &Attempt, mishap: Mishap) {
        if attempt.attempt() > 1 || (mishap == Mishap::Glut && !self.limited) {
            return;
        }
        self.about_to(mishap.as_str(), attempt.id().into());
        match mishap {
            Mishap::Panic => panic!("a handler panics"),
            Mishap::Hang => std::future::pending().await,
            // Touched page by page, so that it is really asked for.
            Mishap::Glut => {
                let mut pile = Vec::new();
                loop {
                    pile.push(vec![1u8; 64 << 20]);
                }
            }
        }
    }

    /// Notes that something is about to go wrong on purpose.
    pub(crate) fn about_to(&self, what: &str, id: i64) {
        self.log.write(&Line::Mishap {
            what: what.to_owned(),
            id,
        });
    }
}

/// A handler while it runs.
pub(crate) struct Running {
    log: Arc<Log>,
    id: i64,
    epoch: i64,
}

impl Drop for Running {
    fn drop(&mut self) {
        let (id, epoch) = (self.id, self.epoch);
        self.log.write(&Line::End {
            at: now_ms(),
            id,
            epoch,
        });
    }
}

/// What the library tells its listener, as far as the checks want to know it.
pub(crate) fn heard(log: &Log, event: &Event) {
    let note = |what: &str| Line::Note { what: what.to_owned() };
    let line = match event {
        Event::Settled {
            id,
            epoch,
            ended: Ended::Done,
            ..
        } => Line::Done {
            id: (*id).into(),
            epoch: *epoch,
        },
        Event::LeaseLost { id, epoch, .. } => Line::Lost {
            id: (*id).into(),
            epoch: *epoch,
        },
        Event::CommitResolved {
            id, epoch, committed, ..
        } => Line::Resolved {
            id: (*id).into(),
            epoch: *epoch,
            committed: *committed,
        },
        Event::ClaimReplyLost { .. } => note("claim reply lost"),
        Event::EffectUncertain { .. } => note("effect uncertain"),
        Event::EffectReplayed { .. } => note("effect replayed"),
        Event::CutOff => note("cut off"),
        Event::DeclaredDead => note("declared dead"),
        Event::BatchUndone { .. } => note("batch undone"),
        _ => return,
    };
    log.write(&line);
}
