//! The nouns: the rows of the tables, the processes, and what each attempt is up to.
//!
//! The tables are kept as tables. A job has no status here either: it is where its rows are. So a broken protocol can
//! put it in two places at the same time, and the rules see it.

use crate::{
    bounds::Bounds,
    outcome::{Ended, State},
    rule::Rule,
};

/// Proof of a lease on a given job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token {
    /// Rises with every claim of the job.
    pub epoch: u8,
    /// The row of the worker that claimed.
    pub worker: usize,
}

/// A row of `ready` or `case_file`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// The epoch of the last claim.
    pub epoch: u8,
    /// Attempts used up.
    pub attempt: u8,
}

/// A row of `lease`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// What a settlement must show.
    pub token: Token,
    /// The number of this attempt.
    pub attempt: u8,
    /// An open transaction has deleted it: it is still there for others, and they wait or skip it.
    pub locked: bool,
}

/// A row of `outcome`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// The attempt that ended.
    pub token: Token,
    /// How.
    pub ended: Ended,
}

/// A job's rows, and what the rules remember of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Job {
    /// How often it was put in, by its producer or as the next link of the job before it.
    pub put: u8,
    /// Its row in `ready`.
    pub ready: Option<Row>,
    /// Its rows in `lease`.
    pub leases: Vec<Lease>,
    /// Its row in `case_file`.
    pub case: Option<Row>,
    /// Its rows in `outcome`, as far as somebody can still ask for them.
    pub outcomes: Vec<Outcome>,
    /// How many of all its rows in `outcome` say done.
    pub done: u8,
    /// The ledger: business writes that committed. Nothing unique about it, so a double shows.
    pub writes: u8,
    /// Its rows in `audit`.
    pub audits: u8,
    /// For the rules: attempts started since it was put in or reopened, less those given back.
    pub started: u8,
    /// For the rules: the highest epoch that a lease ever had.
    pub epoch_max: Option<u8>,
    /// Recovery has read the lease and will write later; only [`Bug::RecoveryOverwrites`](crate::Bug) works like that.
    pub noted: bool,
}

impl Job {
    /// Done, and nothing more will happen to it.
    pub fn is_finished(&self) -> bool {
        self.done > 0 && self.ready.is_none() && self.leases.is_empty() && self.case.is_none()
    }

    /// Finished, or a case that waits for a person.
    pub fn is_terminal(&self) -> bool {
        self.is_finished() || (self.case.is_some() && self.ready.is_none() && self.leases.is_empty())
    }

    /// The lease that this token proves.
    pub fn lease_of(&self, token: Token) -> Option<&Lease> {
        self.leases.iter().find(|lease| lease.token == token)
    }

    /// Whether the attempt of this token wrote that it is done.
    pub fn says_done(&self, token: Token) -> bool {
        let done = Outcome {
            token,
            ended: Ended::Done,
        };
        self.outcomes.contains(&done)
    }

    /// Puts it in one place.
    pub fn stand(&mut self, place: State, row: Row) {
        match place {
            State::Case => self.case = Some(row),
            State::Ready | State::Waiting | State::Leased => self.ready = Some(row),
            State::Finished => {}
        }
    }
}

/// A row of `worker`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    /// What recovery sees of it.
    pub pulse: Pulse,
    /// A claim of it is under way on the server, which holds this row for key share.
    pub claiming: bool,
}

impl Worker {
    /// A row that is gone.
    pub const FORGOTTEN: Worker = Worker {
        pulse: Pulse::Forgotten,
        claiming: false,
    };
}

/// How a worker's row looks to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pulse {
    /// Its last heartbeat is younger than its lease.
    Fresh,
    /// Its last heartbeat is older: it may be declared dead at any time, or send a heartbeat before.
    Stale,
    /// Declared dead, for ever.
    Dead,
    /// Its row is removed.
    Forgotten,
}

impl Pulse {
    /// Not declared dead: it may claim and send heartbeats.
    pub fn is_alive(self) -> bool {
        matches!(self, Pulse::Fresh | Pulse::Stale)
    }
}

/// A worker process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// The row it is registered under.
    pub worker: usize,
}

/// One attempt: what its process knows of it, and its transaction on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Run {
    /// The job.
    pub job: usize,
    /// What the claim handed out.
    pub token: Token,
    /// The process in whose memory it is.
    pub process: Option<usize>,
    /// What that process is doing about it.
    pub mind: Mind,
    /// Its transaction.
    pub tx: Tx,
    /// What was sent to the server and has not been carried out there.
    pub wire: Option<Wire>,
    /// What the process takes for the truth about its commit.
    pub told: Option<bool>,
}

/// Where the process is with an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mind {
    /// Runs the body, or settles.
    Running,
    /// Waits for the reply to its commit.
    Sent,
    /// The reply was an error or none.
    Doubt,
    /// Waits for a lock in a statement that had begun before: only [`Bug::OneStatement`](crate::Bug) asks like that.
    Asking,
    /// The lease is still there, so the attempt is to be settled as failed.
    Failing,
    /// Nobody waits for it any more; its process is through with it, or dead.
    Over,
}

/// Where an attempt's transaction is, on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tx {
    /// Begun; the business write is made in it at some time, which nobody sees before the commit.
    Open,
    /// The lease is deleted in it, and locked.
    Settled,
    /// Committed.
    Committed,
    /// Rolled back, for whatever reason.
    Aborted,
    /// Rolled back because the token did not hold.
    Refused,
}

impl Tx {
    /// Whether it is over.
    pub fn is_over(self) -> bool {
        matches!(self, Tx::Committed | Tx::Aborted | Tx::Refused)
    }
}

/// What is on its way to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wire {
    /// The commit of a transaction that has settled.
    Commit,
    /// Settlement and commit in one: while it is on its way, nothing is locked.
    SettleAndCommit,
}

/// An observation of a step. It does not change what follows, and shows that the model reaches what it must.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    /// Nothing of note.
    Nothing,
    /// A late attempt was refused, for its token no longer held.
    Refused,
    /// A doubtful commit was found to have committed.
    FoundCommitted,
    /// A doubtful commit was found not to have.
    FoundNotCommitted,
    /// A claim whose reply was lost was handed back.
    Released,
}

/// How many of each may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Left {
    /// Processes frozen.
    pub pauses: u8,
    /// Processes killed.
    pub crashes: u8,
    /// Replies lost, of a claim or a commit.
    pub cuts: u8,
    /// Cases reopened.
    pub reopens: u8,
}

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// Chain by chain, link by link.
    pub jobs: Vec<Job>,
    /// In the order they registered.
    pub workers: Vec<Worker>,
    /// Always as many.
    pub processes: Vec<Process>,
    /// In order, so that two worlds that differ in nothing else are one.
    pub runs: Vec<Run>,
    /// What may still go wrong.
    pub left: Left,
    /// The observation of the last step.
    pub seen: Seen,
    /// The rule that the last step broke; nothing follows it.
    pub broken: Option<Rule>,
}

impl World {
    /// Nothing enqueued, every process registered.
    pub fn new(bounds: &Bounds) -> World {
        let mut world = World {
            jobs: vec![Job::default(); bounds.chains * bounds.links],
            workers: Vec::new(),
            processes: Vec::new(),
            runs: Vec::new(),
            left: bounds.left,
            seen: Seen::Nothing,
            broken: None,
        };
        for _ in 0..bounds.processes {
            let worker = world.register();
            world.processes.push(Process { worker });
        }
        world
    }

    /// Enters a worker under an id that nobody had.
    pub fn register(&mut self) -> usize {
        self.workers.push(Worker {
            pulse: Pulse::Fresh,
            claiming: false,
        });
        self.workers.len() - 1
    }

    /// A worker's last heartbeat is older than its lease now.
    pub fn stale(&mut self, worker: usize) {
        let pulse = &mut self.workers[worker].pulse;
        if *pulse == Pulse::Fresh {
            *pulse = Pulse::Stale;
        }
    }

    /// The process that is registered under this row now.
    pub fn process_of(&self, worker: usize) -> Option<usize> {
        self.processes.iter().position(|process| process.worker == worker)
    }

    /// A lease on this job that only the database knows this worker holds: no attempt in memory has its token.
    pub fn unknown_lease(&self, worker: usize, job: usize) -> Option<usize> {
        let known = |token| {
            let mut runs = self.runs.iter().filter(|run| run.mind != Mind::Over);
            runs.any(|run| run.job == job && run.token == token)
        };
        let unknown = |lease: &Lease| lease.token.worker == worker && !lease.locked && !known(lease.token);
        self.jobs[job].leases.iter().position(unknown)
    }
}
