//! Runs after-commit hooks, once the commit is known to have happened.

use std::sync::Arc;

use super::shared::{Claims, HOOKS_MAX, Shared};
use crate::{attempt::hand::InHand, event::Event, handle::Hook, state::Ended};

/// Starts the hooks of a job that ended like this. They hold neither its slot nor its lease. Hooks of a job that is not
/// done are dropped, and so are hooks beyond the limit.
pub(crate) fn start<C: Claims>(shared: &Shared<C>, job: &InHand, ended: Ended) {
    let hooks = job.take_hooks();
    let Some(shared) = shared.me.upgrade() else { return };
    if ended != Ended::Done || hooks.is_empty() {
        return;
    }
    let (id, kind, limit) = (job.token.id, job.names.kind.clone(), job.limit);
    let Ok(permit) = shared.hooks_left.clone().try_acquire_owned() else {
        let count = hooks.len();
        let problem = format!("its {count} hooks were dropped: the hooks of {HOOKS_MAX} other jobs are still running");
        return failed(&shared, id, &job.names.kind, problem);
    };
    shared.hooks.clone().spawn(async move {
        let _permit = permit;
        let all = tokio::time::timeout(limit, run_all(&shared, id, &kind, hooks));
        tokio::select! {
            biased;
            () = shared.gone.cancelled() => tracing::warn!(job = id, "the worker has stopped; after-commit hooks were dropped"),
            ran = all => if ran.is_err() {
                failed(&shared, id, &kind, format!("ran longer than the kind's time limit of {limit:?}"));
            },
        }
    });
}

/// Runs them one after another, in the order they were given. A hook that fails does not stop the others.
async fn run_all<C: Claims>(shared: &Arc<Shared<C>>, id: i64, kind: &str, hooks: Vec<Hook>) {
    for hook in hooks {
        if let Err(error) = hook.run().await {
            failed(shared, id, kind, error);
        }
    }
}

fn failed<C: Claims>(shared: &Shared<C>, id: i64, kind: &str, error: String) {
    tracing::warn!(job = id, kind, "after-commit hook failed, the job stays done: {error}");
    shared.emit(Event::HookFailed {
        id: id.into(),
        kind: kind.to_owned(),
        error,
    });
}
