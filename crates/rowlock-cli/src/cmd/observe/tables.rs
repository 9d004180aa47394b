//! Tables that more than one command shows.

use comfy_table::{Cell, Color};
use rowlock::{
    Ended, State,
    effect::{EffectState, EffectView},
    observe::{AttemptView, JobView},
};

use crate::output::{right, short, span_ms, table, text, when};

pub(crate) fn jobs(jobs: &[JobView]) -> String {
    let mut rows = table(["id", "kind", "queue", "state", "attempt", "when", "last error"]);
    for job in jobs {
        rows.add_row([
            right(job.id),
            Cell::new(&job.kind),
            Cell::new(&job.queue),
            state(job),
            right(format!("{}/{}", job.attempt, job.attempts_max)),
            Cell::new(moment(job)),
            Cell::new(job.last_error.as_deref().map(|e| short(e, 60)).unwrap_or_default()),
        ]);
    }
    text(&rows)
}

/// The state as one word; a finished job says how it finished.
pub(crate) fn state(job: &JobView) -> Cell {
    match (job.state, job.last_outcome) {
        (State::Finished, Some(Ended::Done)) => Cell::new("done").fg(Color::Green),
        (State::Finished, Some(Ended::Cancelled)) => Cell::new("cancelled"),
        (State::Case, _) => Cell::new("case").fg(Color::Red),
        (state, _) => Cell::new(state.as_str()),
    }
}

/// The time that matters in the job's state.
pub(crate) fn moment(job: &JobView) -> String {
    match (job.state, job.due_at, job.claimed_at, job.last_ended_at) {
        (State::Ready, Some(due), _, _) => format!("due {}", when(due)),
        (State::Leased, _, Some(claimed), _) => format!("claimed {}", when(claimed)),
        (_, _, _, Some(ended)) => when(ended),
        _ => format!("enqueued {}", when(job.created_at)),
    }
}

pub(crate) fn attempts(attempts: &[AttemptView]) -> String {
    let mut rows = table(["attempt", "outcome", "took", "ended", "worker", "error"]);
    for attempt in attempts {
        let took = attempt.ended_at.duration_since(attempt.started_at).as_millis();
        let outcome = Cell::new(attempt.outcome.as_str());
        rows.add_row([
            right(attempt.attempt),
            match attempt.outcome {
                Ended::Done => outcome.fg(Color::Green),
                Ended::Retired | Ended::Lost => outcome.fg(Color::Red),
                _ => outcome,
            },
            right(span_ms(i64::try_from(took).unwrap_or(i64::MAX))),
            Cell::new(when(attempt.ended_at)),
            right(i64::from(attempt.worker)),
            Cell::new(attempt.error.as_deref().map(|e| short(e, 200)).unwrap_or_default()),
        ]);
    }
    text(&rows)
}

pub(crate) fn effects(effects: &[EffectView]) -> String {
    let mut rows = table([
        "no", "job", "name", "state", "policy", "tries", "begun", "key", "answer",
    ]);
    for effect in effects {
        let state = Cell::new(effect.state.as_str());
        let reply = effect.reply.as_ref().map(ToString::to_string);
        let answer = reply.or_else(|| effect.error.clone()).unwrap_or_default();
        rows.add_row([
            right(effect.no),
            right(effect.id),
            Cell::new(&effect.name),
            match effect.state {
                EffectState::Replied => state.fg(Color::Green),
                EffectState::Uncertain => state.fg(Color::Red),
                _ => state,
            },
            Cell::new(&effect.policy),
            right(effect.tries),
            Cell::new(when(effect.begun_at)),
            Cell::new(&effect.key),
            Cell::new(short(&answer, 60)),
        ]);
    }
    text(&rows)
}
