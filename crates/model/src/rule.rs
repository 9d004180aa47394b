//! The rules, as judged from the tables before and after a step. They know nothing of the steps' conditions.
//!
//! A step that breaks several rules is charged with the first one, in the order below. The token comes first, because a
//! write without one had no right to break any of the others. So a counterexample names its cause.

use crate::{
    bounds::Bounds,
    step::Step,
    world::{Job, Token, Tx, World},
};

/// What must always hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// No write without the current token.
    Token,
    /// One effect.
    OneWrite,
    /// All or nothing.
    Together,
    /// The end is the end.
    Absorbing,
    /// One owner.
    OneLease,
    /// No token twice.
    Epochs,
    /// A limit on attempts.
    Attempts,
    /// Never guess.
    Resolved,
    /// Every job comes to its end.
    Ends,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Rule; 9] = [
        Rule::Token,
        Rule::OneWrite,
        Rule::Together,
        Rule::Absorbing,
        Rule::OneLease,
        Rule::Epochs,
        Rule::Attempts,
        Rule::Resolved,
        Rule::Ends,
    ];

    /// The rule in words, which is also its property's name.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Token => "nothing is written with a stale token",
            Rule::OneWrite => "at most one attempt's write commits per job",
            Rule::Together => "outcome, write and next link are together or not at all",
            Rule::Absorbing => "only an audited reopen leaves a terminal state",
            Rule::OneLease => "at most one live lease per job",
            Rule::Epochs => "epochs only grow, and no token fits two leases",
            Rule::Attempts => "attempts started less those given back stay within the limit",
            Rule::Resolved => "an unknown commit is never resolved wrongly",
            Rule::Ends => "every job is terminal once faults stop",
        }
    }
}

/// The rule that a step broke. [`Rule::Ends`] is not about a step, and judged elsewhere.
pub fn broken(before: &World, step: Step, after: &World, bounds: &Bounds) -> Option<Rule> {
    let writer = step
        .run()
        .and_then(|run| before.runs.get(run))
        .map(|run| (run.job, run.token));
    let jobs = || before.jobs.iter().zip(&after.jobs);
    let any = |test: &dyn Fn(&Job, &Job) -> bool| jobs().any(|(before, after)| test(before, after));

    let checks: [(Rule, &dyn Fn() -> bool); 8] = [
        (Rule::Token, &|| {
            (0..)
                .zip(jobs())
                .any(|(no, (before, after))| stale(no, before, after, writer))
        }),
        (Rule::OneWrite, &|| any(&|_, job| job.writes > 1)),
        (Rule::Together, &|| !together(after, bounds)),
        (Rule::Absorbing, &|| any(&left_its_end)),
        (Rule::OneLease, &|| any(&|_, job| job.leases.len() > 1)),
        (Rule::Epochs, &|| any(&leased_anew)),
        (Rule::Attempts, &|| any(&|_, job| job.started > bounds.attempts_max)),
        (Rule::Resolved, &|| wrongly_resolved(after)),
    ];
    checks.iter().find(|(_, broken)| broken()).map(|(rule, _)| *rule)
}

/// An attempt wrote, or ended a lease, without holding the lease at that moment.
fn stale(no: usize, before: &Job, after: &Job, writer: Option<(usize, Token)>) -> bool {
    let token = writer.filter(|(job, _)| *job == no).map(|(_, token)| token);
    let wrote = after.writes > before.writes;
    let held = token.is_some_and(|token| before.lease_of(token).is_some());
    let mut ended = before
        .leases
        .iter()
        .filter(|lease| after.lease_of(lease.token).is_none());
    (wrote && !held) || (writer.is_some() && ended.any(|lease| Some(lease.token) != token))
}

/// Each job's closing row, its write and its next link are equally many.
fn together(world: &World, bounds: &Bounds) -> bool {
    (0..).zip(&world.jobs).all(|(no, job)| {
        let linked = bounds.next_of(no).is_none_or(|next| world.jobs[next].put == job.done);
        job.done == job.writes && linked
    })
}

/// A finished job is open again, and no audit row explains it.
fn left_its_end(before: &Job, after: &Job) -> bool {
    let left = (before.is_finished() && !after.is_finished()) || (before.case.is_some() && after.case.is_none());
    left && after.audits == before.audits
}

/// A lease came into being whose epoch one before it had, or passed.
fn leased_anew(before: &Job, after: &Job) -> bool {
    let mut new = after
        .leases
        .iter()
        .filter(|lease| before.lease_of(lease.token).is_none());
    new.any(|lease| before.epoch_max.is_some_and(|max| lease.token.epoch <= max))
}

/// Also when the truth only comes out later: what a process heard stays with the attempt until its transaction is over.
fn wrongly_resolved(world: &World) -> bool {
    let wrong = |told: bool, tx: Tx| told != (tx == Tx::Committed);
    world
        .runs
        .iter()
        .any(|run| run.told.is_some_and(|told| wrong(told, run.tx)))
}
