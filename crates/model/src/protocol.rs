//! The model: which steps there are, what each does, and what is asked of every state.

use stateright::{Model, Property};

use crate::{
    bounds::Bounds,
    bug::Bug,
    outcome::Ended,
    rule::{self, Rule},
    step::Step,
    world::{Mind, Pulse, Run, Seen, Tx, Wire, World},
};

/// The claim protocol within bounds, sound or with one mistake in it.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// How much may happen.
    pub bounds: Bounds,
    /// The mistake.
    pub bug: Option<Bug>,
    /// Whether equivalent worlds are folded into one. A test searches without, to show that this loses nothing.
    pub folded: bool,
}

type Checked = Property<Protocol>;

/// What the sound model must reach; otherwise it shows nothing.
pub const REACHED: [&str; 6] = [
    "a late attempt is refused",
    "an unknown commit is found committed",
    "an unknown commit is found not committed",
    "a claim whose reply was lost is handed back",
    "a case is filed",
    "a reopened job is done",
];

impl Protocol {
    /// As the library has it.
    pub fn sound(bounds: Bounds) -> Protocol {
        Protocol {
            bounds,
            bug: None,
            folded: true,
        }
    }

    /// With one mistake, in bounds that are enough for it to show.
    pub fn broken(bug: Bug) -> Protocol {
        Protocol {
            bug: Some(bug),
            ..Protocol::sound(Bounds::least())
        }
    }

    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Nothing more happens by itself: only faults and an operator's choice are left.
    fn is_at_rest(&self, world: &World) -> bool {
        let mut rest = true;
        self.each_step(world, &mut |step| rest &= step.is_optional());
        rest
    }

    /// Every job that was put in has come to its end.
    fn has_ended(&self, world: &World) -> bool {
        let mut jobs = (0..).zip(&world.jobs);
        jobs.all(|(no, job)| job.put == 0 || self.bounds.next_of(no).is_none() || job.is_terminal())
    }

    fn apply(&self, world: &mut World, step: Step) {
        match step {
            Step::Enqueue(job) => self.enqueue(world, job),
            Step::Claim(process) => {
                let worker = world.processes[process].worker;
                world.workers[worker].claiming = true;
            }
            Step::Take { worker, job, heard } => self.taken(world, worker, job, heard),
            Step::TakeNothing(worker) => world.workers[worker].claiming = false,
            Step::Settle(run) => self.settle(world, run),
            Step::Send(run) => send(&mut world.runs[run], Wire::Commit),
            Step::PassOn(run) => send(&mut world.runs[run], Wire::SettleAndCommit),
            Step::Land(run) => self.land(world, run),
            Step::Abort(run) => self.abort(world, run),
            Step::Hear(run) => self.hear(world, run),
            Step::Cut(run) => {
                world.left.cuts -= 1;
                world.runs[run].mind = Mind::Doubt;
            }
            Step::Look(run) => self.look(world, run),
            Step::SettleFailed(run) => self.fail_after_doubt(world, run),
            Step::Fail(run) => self.fail(world, run),
            Step::TimeLimit(run) => {
                let Run { job, token, .. } = world.runs[run];
                self.settle_failed(world, job, token);
            }
            Step::Pause(process) => {
                world.left.pauses -= 1;
                world.stale(world.processes[process].worker);
            }
            Step::Crash(process) => crash(world, process),
            Step::Beat(process) => beat(world, process),
            Step::Sweep { process, job } => self.sweep(world, process, job),
            Step::MarkDead(worker) => world.workers[worker].pulse = Pulse::Dead,
            Step::Note(job) => world.jobs[job].noted = true,
            Step::Expire(job) => self.expire(world, job),
            Step::Forget(worker) => world.workers[worker].pulse = Pulse::Forgotten,
            Step::Reopen(job) => self.reopen(world, job),
        }
    }

    fn taken(&self, world: &mut World, worker: usize, job: usize, heard: bool) {
        world.workers[worker].claiming = false;
        let token = self.take(world, worker, job);
        match (world.process_of(worker), token, heard) {
            (Some(process), Some(token), true) => world.runs.push(Run {
                job,
                token,
                process: Some(process),
                mind: Mind::Running,
                tx: Tx::Open,
                wire: None,
                told: None,
            }),
            (Some(_), _, false) => world.left.cuts -= 1,
            _ => {}
        }
    }

    /// Hands back a lease that only the database knows of.
    fn sweep(&self, world: &mut World, process: usize, job: usize) {
        let worker = world.processes[process].worker;
        if let Some(lease) = world.unknown_lease(worker, job) {
            self.end(world, job, lease, Some(Ended::Released));
            world.seen = Seen::Released;
        }
    }
}

fn send(run: &mut Run, wire: Wire) {
    run.wire = Some(wire);
    run.mind = Mind::Sent;
}

/// What was sent before the end may still be carried out.
fn crash(world: &mut World, process: usize) {
    world.left.crashes -= 1;
    let runs = world.runs.iter_mut();
    for run in runs.filter(|run| run.process == Some(process) && run.mind != Mind::Over) {
        run.mind = Mind::Over;
    }
    world.stale(world.processes[process].worker);
    world.processes[process].worker = world.register();
}

/// Zero rows: it was declared dead. Its attempts go on, with tokens that are no longer valid.
fn beat(world: &mut World, process: usize) {
    let worker = world.processes[process].worker;
    match world.workers[worker].pulse.is_alive() {
        true => world.workers[worker].pulse = Pulse::Fresh,
        false => world.processes[process].worker = world.register(),
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.bounds)]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.broken.is_none() {
            self.each_step(world, &mut |step| steps.push(step));
        }
    }

    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let mut after = before.clone();
        after.seen = Seen::Nothing;
        self.apply(&mut after, step);
        after.broken = rule::broken(before, step, &after, &self.bounds);
        after.drop_unseen();
        if self.folded {
            after.fold();
        }
        Some(after)
    }

    fn properties(&self) -> Vec<Checked> {
        let [refused, committed, not_committed, released, filed, reopened] = REACHED;
        vec![
            Checked::always(Rule::Token.name(), |_, w| w.broken != Some(Rule::Token)),
            Checked::always(Rule::OneWrite.name(), |_, w| w.broken != Some(Rule::OneWrite)),
            Checked::always(Rule::Together.name(), |_, w| w.broken != Some(Rule::Together)),
            Checked::always(Rule::Absorbing.name(), |_, w| w.broken != Some(Rule::Absorbing)),
            Checked::always(Rule::OneLease.name(), |_, w| w.broken != Some(Rule::OneLease)),
            Checked::always(Rule::Epochs.name(), |_, w| w.broken != Some(Rule::Epochs)),
            Checked::always(Rule::Attempts.name(), |_, w| w.broken != Some(Rule::Attempts)),
            Checked::always(Rule::Resolved.name(), |_, w| w.broken != Some(Rule::Resolved)),
            Checked::always(Rule::Ends.name(), |model, w| {
                w.broken.is_some() || model.has_ended(w) || !model.is_at_rest(w)
            }),
            Checked::sometimes(refused, |_, w| w.seen == Seen::Refused),
            Checked::sometimes(committed, |_, w| w.seen == Seen::FoundCommitted),
            Checked::sometimes(not_committed, |_, w| w.seen == Seen::FoundNotCommitted),
            Checked::sometimes(released, |_, w| w.seen == Seen::Released),
            Checked::sometimes(filed, |_, w| w.jobs.iter().any(|job| job.case.is_some())),
            Checked::sometimes(reopened, |_, w| {
                w.jobs.iter().any(|job| job.audits > 0 && job.is_finished())
            }),
        ]
    }
}
