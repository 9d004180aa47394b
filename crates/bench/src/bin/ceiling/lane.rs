//! The numbers under which rowlock files a queue and a kind. They are asked of the library: it enqueues one job, which
//! is read back and removed before anything is measured.

use anyhow::Result;
use rowlock::{Backend, Job, Rowlock};
use serde::{Deserialize, Serialize};

/// The job that all of this is about.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "noop", queue = "noop")]
pub(crate) struct Noop {
    pub(crate) number: i64,
    pub(crate) fill: String,
}

/// Where the no-op jobs stand in line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    pub(crate) queue_no: i64,
    pub(crate) kind_no: i64,
}

/// Puts one job in through the library; it is for the caller to read and remove.
pub(crate) async fn sample<DB: Backend>(url: &str) -> Result<i64> {
    let rowlock = Rowlock::<DB>::open(url)?;
    let job = Noop {
        number: -1,
        fill: String::new(),
    };
    Ok(rowlock.enqueue_now(job).await?.id())
}
