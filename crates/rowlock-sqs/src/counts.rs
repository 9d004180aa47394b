//! What a bridge did, in numbers that only rise.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The numbers of a bridge, shared by its parts.
        #[derive(Debug, Default)]
        pub struct Counts {
            $(pub(crate) $name: AtomicU64,)*
        }

        /// The numbers at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        #[non_exhaustive]
        pub struct Count {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            /// The numbers now.
            pub fn read(&self) -> Count {
                Count { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counts!(
    /// Messages received.
    received,
    /// Pointers that made a job due.
    triggered,
    /// Foreign messages that became a job.
    enqueued,
    /// Messages that changed nothing: their job had been triggered or enqueued, was under way or over.
    duplicates,
    /// Messages that could not be read.
    malformed,
    /// Pointers to jobs that are not there.
    unknown,
    /// Pointers to jobs of another database.
    foreign_pointers,
    /// Foreign messages whose key is held by another request.
    conflicts,
    /// Messages that were kept as a case.
    kept,
    /// Messages of a dead-letter queue that were kept as a case.
    drained,
    /// Messages deleted.
    deleted,
    /// Deletes that failed, each try of them.
    delete_failures,
    /// Messages that are left to come again: their delete failed too often, or the database refuses what is in them.
    left,
    /// Messages that were deleted while their job was not taken yet: to receive others, or because they were held for
    /// long.
    let_go,
    /// How often the visibility of a message was extended.
    extended,
    /// Extensions that failed.
    extend_failures,
    /// Pointers sent for the first time.
    sent,
    /// Pointers sent again.
    resent,
    /// Sends that failed.
    send_failures,
    /// Receives that failed.
    receive_failures,
    /// Times that the database did not answer.
    database_failures,
);

pub(crate) fn add(count: &AtomicU64, by: usize) {
    count.fetch_add(by as u64, Ordering::Relaxed);
}
