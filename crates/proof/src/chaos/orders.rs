//! The orders of a rower: its only argument, as JSON.

use std::{net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

/// A set of job kinds with their producers and checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Workload {
    /// Money moved between accounts.
    Transfers,
    /// The same in batches.
    Tallies,
    /// Five links with fan-out.
    Chains,
    /// Staged charges at two tills.
    Charges,
    /// Jobs that depend on something that is down now and then.
    Dials,
    /// Jobs that people meddle with.
    Errands,
    /// Jobs that run one after the other.
    Groups,
    /// Several that saw the same thing.
    Guards,
    /// Several producers under one key.
    Keys,
    /// Jobs that end their process, fail always, or go wrong on the way.
    Poison,
    /// Jobs that nobody runs.
    Unknown,
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 11] = [
        Workload::Transfers,
        Workload::Tallies,
        Workload::Chains,
        Workload::Charges,
        Workload::Dials,
        Workload::Errands,
        Workload::Groups,
        Workload::Guards,
        Workload::Keys,
        Workload::Poison,
        Workload::Unknown,
    ];

    /// As the command line names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Workload::Transfers => "transfers",
            Workload::Tallies => "tallies",
            Workload::Chains => "chains",
            Workload::Charges => "charges",
            Workload::Dials => "dials",
            Workload::Errands => "errands",
            Workload::Groups => "groups",
            Workload::Guards => "guards",
            Workload::Keys => "keys",
            Workload::Poison => "poison",
            Workload::Unknown => "unknown",
        }
    }

    /// Reads its name.
    pub fn parse(name: &str) -> Option<Workload> {
        Workload::ALL.into_iter().find(|workload| workload.as_str() == name)
    }
}

/// What one rower does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Role {
    /// Runs jobs.
    Work {
        /// The lease.
        lease_ms: u64,
        /// How long it may take to stop.
        grace_ms: u64,
        /// Concurrent handlers.
        concurrency: usize,
        /// Connections for handlers.
        connections: usize,
        /// Jobs claimed ahead; as many as it likes if not said.
        prefetch: Option<usize>,
        /// The name it gives itself; another may have the same.
        name: String,
        /// Its memory is limited: a glutton may go on.
        limited: bool,
        /// Looks for jobs itself instead of listening.
        poll_only: bool,
    },
    /// Applies migrations, and ends.
    Migrate,
    /// Enqueues orders.
    Produce {
        /// Its number: each order has another.
        no: i64,
        /// Orders per second.
        rate: u32,
        /// Stops while so many jobs wait.
        backlog: i64,
        /// Handlers that take longer than a lease are many.
        slow: bool,
        /// What it enqueues.
        workloads: Vec<Workload>,
        /// Decides which orders come when.
        seed: u64,
    },
}

/// All orders of a rower.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RowerOrders {
    /// The database.
    pub url: String,
    /// Where it writes down what it does.
    pub log: PathBuf,
    /// The till that knows keys.
    pub till: SocketAddr,
    /// The till that does not.
    pub blind_till: SocketAddr,
    /// What it does.
    pub role: Role,
}
