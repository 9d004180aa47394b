//! Settle: the outcome, the writes and the next link in one commit, only while the lease holds.

use rowlock::{Ended, State};

use super::{Bed, Note, Running, note, until};

async fn an_atomic_job_commits_its_writes_with_its_outcome(bed: Bed) {
    let id = bed.rowlock.enqueue_now(Note::new("hello")).await.unwrap().id();

    let running = Running::start(bed.worker().atomic(note));
    until("the job to finish", async || running.counters.settled(Ended::Done) == 1).await;
    running.stop().await;

    assert_eq!(bed.count("select count(*) from ledger").await, 1);
    let job = bed.rowlock.observe().job(id).await.unwrap().unwrap();
    assert_eq!((job.state, job.last_outcome, job.attempt), (State::Finished, Some(Ended::Done), 1));
}

mod tests {
    crate::cases::cases!(an_atomic_job_commits_its_writes_with_its_outcome);
}
