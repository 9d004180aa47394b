//! The same store once more, with connections of its own.

use std::sync::{Arc, OnceLock};

use tokio::sync::Semaphore;

use super::{
    Inner, PgStore,
    conns::{Conns, Setup},
    engine_setup, row_setup,
};

impl PgStore {
    /// [`Store::twin`], by its own type.
    pub fn twin_here(&self) -> PgStore {
        let inner = &self.0;
        let twin = Inner {
            hosts: inner.hosts.clone(),
            sql: inner.sql.clone(),
            channel: inner.channel.clone(),
            timing: inner.timing,
            handlers_max: inner.handlers_max,
            clock: inner.clock.clone(),
            engine: Conns::new(&inner.hosts, "rowlock watch", engine_setup(inner.timing), 2),
            rows: Conns::new(&inner.hosts, "rowlock watch", row_setup(inner.timing), 1),
            keyed: Semaphore::new(1),
            handlers: Conns::new(&inner.hosts, "rowlock watch", Setup::default(), 1),
            heard: inner.heard.clone(),
            wakes: OnceLock::new(),
        };
        PgStore(Arc::new(twin))
    }
}
