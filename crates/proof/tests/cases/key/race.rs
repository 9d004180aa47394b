//! Fifty clients race one key, half of them with another body: one effect, 25 conflicts, and the stored answer for
//! every repeat, whichever caller is first and whatever became of the job meanwhile.

use std::{sync::Arc, time::Duration};

use rowlock::{Ended, Enqueued, Error, Fail, State, atomic, key::Existing};
use serde_json::json;
use sqlx::Connection;
use tokio::{sync::Barrier, task::JoinSet};

use super::db::{Conn, Ctx, Outcome, Rowlock, Tx};
use super::{Bed, Note, Running, fail, until, write};

const CLIENTS: usize = 50;
const KEY: &str = "charge:42";

/// One client's own connection and request.
struct Client {
    rowlock: Rowlock,
    conn: Conn,
    text: &'static str,
}

impl Client {
    /// One transaction; another one in the way is a reason to run it again, and nothing else is.
    async fn ask(&mut self) -> Result<Enqueued, Error> {
        loop {
            let mut tx = self.conn.begin().await.unwrap();
            match self.rowlock.enqueue(&mut *tx, Note::new(self.text)).key(KEY).await {
                Ok(put) => {
                    tx.commit().await.unwrap();
                    return Ok(put);
                }
                Err(error) => {
                    tx.rollback().await.unwrap();
                    if !error.is_retryable() {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Asks until the job has come to its end, as a client that wants the answer does.
    async fn ask_to_the_end(&mut self) -> Result<(bool, Option<Existing>), Error> {
        let first = self.ask().await?;
        let made = first.is_new();
        let mut said = first;
        let mut asked = 0;
        loop {
            match said {
                Enqueued::Existing(existing) if existing.state == Some(State::Finished) => {
                    return Ok((made, Some(existing)));
                }
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
            asked += 1;
            assert!(asked < 1000, "no end in sight");
            said = self.ask().await?;
        }
    }
}

async fn clients(bed: &Bed, texts: &[&'static str]) -> Vec<Client> {
    let mut clients = Vec::new();
    for text in texts {
        clients.push(Client {
            rowlock: bed.rowlock.clone(),
            conn: bed.conn().await,
            text,
        });
    }
    clients
}

/// Half of them with another body.
fn halves() -> Vec<&'static str> {
    (0..CLIENTS).map(|i| if i % 2 == 0 { "a" } else { "b" }).collect()
}

/// What the clients got: new jobs, existing ones, conflicts.
#[derive(Debug, Default, PartialEq)]
struct Told {
    new: usize,
    existing: Vec<Existing>,
    conflicts: usize,
}

/// Lets them all go at the same time.
async fn race<F>(clients: Vec<Client>, ask: impl Fn(Client) -> F) -> Told
where
    F: Future<Output = Result<(bool, Option<Existing>), Error>> + Send + 'static,
{
    let barrier = Arc::new(Barrier::new(clients.len()));
    let mut racing = JoinSet::new();
    for client in clients {
        let (barrier, asking) = (barrier.clone(), ask(client));
        racing.spawn(async move {
            barrier.wait().await;
            asking.await
        });
    }
    let mut told = Told::default();
    while let Some(said) = racing.join_next().await {
        match said.unwrap() {
            Ok((true, _)) => told.new += 1,
            Ok((false, existing)) => told.existing.extend(existing),
            Err(Error::KeyConflict { .. }) => told.conflicts += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    told
}

async fn once(mut client: Client) -> Result<(bool, Option<Existing>), Error> {
    Ok(match client.ask().await? {
        Enqueued::Existing(existing) => (false, Some(existing)),
        put => (put.is_new(), None),
    })
}

async fn to_the_end(mut client: Client) -> Result<(bool, Option<Existing>), Error> {
    client.ask_to_the_end().await
}

async fn charge(cx: Ctx, job: Note, mut tx: Tx) -> Outcome {
    write(&mut tx, cx.id(), &job.text).await?;
    tx.done().result(&json!({ "charged": job.text })).ok()
}

async fn fifty_racing_an_unheard_of_key_make_one_job_and_twenty_five_conflicts(bed: &Bed) {
    let told = race(clients(bed, &halves()).await, once).await;
    assert_eq!((told.new, told.existing.len(), told.conflicts), (1, 24, 25), "{told:?}");
    assert_eq!(bed.count("select count(*) from rowlock.job").await, 1);
    assert_eq!(bed.count("select count(*) from rowlock.ready").await, 1);
    assert_eq!(bed.count("select count(*) from rowlock.job_key").await, 1);
    let id = bed.count("select id from rowlock.job_key").await;
    assert!(
        told.existing
            .iter()
            .all(|e| e.id == id && e.state == Some(State::Ready))
    );

    bed.work(bed.worker().handle(atomic(charge)), &[id]).await;
    assert_eq!(bed.ledger().await, 1);
}

async fn fifty_racing_one_key_get_one_effect_twenty_four_answers_and_twenty_five_conflicts(bed: &Bed) {
    let running = Running::start(bed.worker().handle(atomic(charge)));
    let told = race(clients(bed, &halves()).await, to_the_end).await;
    running.stop().await;
    assert_eq!((told.new, told.existing.len(), told.conflicts), (1, 24, 25), "{told:?}");
    assert_eq!(bed.ledger().await, 1);
    let stored: String = sqlx::query_scalar("select note from ledger")
        .fetch_one(&mut bed.conn().await)
        .await
        .unwrap();
    for answer in &told.existing {
        assert_eq!(answer.outcome, Some(Ended::Done));
        assert_eq!(
            answer.result,
            Some(json!({ "charged": stored })),
            "the stored answer, not another"
        );
    }
}

async fn fifty_racing_a_key_whose_job_was_retired_and_reopened_get_the_same(bed: &Bed) {
    // The first of the fifty; its job fails for good, and then a person reopens it.
    let mut first = clients(bed, &["a"]).await;
    let id = first[0].ask().await.unwrap().id();
    let declined = |cx: Ctx, job: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), &job.text).await?;
        fail(Fail::retire("declined"))
    };
    bed.work(bed.worker().handle(atomic(declined)), &[id]).await;
    let told = race(clients(bed, &halves()).await, once).await;
    assert_eq!((told.new, told.existing.len(), told.conflicts), (0, 25, 25), "{told:?}");
    assert!(told.existing.iter().all(|e| e.id == id && e.state == Some(State::Case)));

    bed.rowlock.operate().reopen(id, "tester").await.unwrap();
    let others = halves();
    let racing = race(clients(bed, &others[1..]).await, to_the_end);
    let running = Running::start(bed.worker().handle(atomic(charge)));
    let told = racing.await;
    running.stop().await;
    assert_eq!((told.new, told.existing.len(), told.conflicts), (0, 24, 25), "{told:?}");
    let answered = |e: &Existing| e.id == id && e.result == Some(json!({ "charged": "a" }));
    assert!(told.existing.iter().all(answered), "{told:?}");
    assert_eq!((bed.ledger().await, bed.ends(id).await.len()), (1, 2));
}

async fn fifty_racing_a_key_whose_hold_is_over_make_one_job(bed: &Bed) {
    let open = rowlock::Hold::WhileOpen;
    let before = bed
        .rowlock
        .enqueue_now(Note::new("before"))
        .key(KEY)
        .hold(open)
        .await
        .unwrap()
        .id();
    bed.work(bed.worker().handle(atomic(charge)), &[before]).await;
    let told = race(clients(bed, &halves()).await, once).await;
    assert_eq!((told.new, told.existing.len(), told.conflicts), (1, 24, 25), "{told:?}");
    let id = bed.count("select id from rowlock.job_key").await;
    assert!(id != before && told.existing.iter().all(|e| e.id == id));
    until("one job beside the finished one", async || {
        bed.count("select count(*) from rowlock.job").await == 2
    })
    .await;
}

mod tests {
    super::super::cases!(
        fifty_racing_an_unheard_of_key_make_one_job_and_twenty_five_conflicts,
        fifty_racing_one_key_get_one_effect_twenty_four_answers_and_twenty_five_conflicts,
        fifty_racing_a_key_whose_job_was_retired_and_reopened_get_the_same,
        fifty_racing_a_key_whose_hold_is_over_make_one_job,
    );
}
