//! The database goes away while messages are held: they stay hidden, and are read when it is back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use proof::bed::postgres_servers;
use proof_sqs::{
    bed::{Bed, until},
    crew::at_once,
    emulators,
};
use rowlock::{Admin, State};
use rowlock_sqs::Role;
use tokio::net::{TcpListener, TcpStream};

/// A way to a server that can be cut and restored.
struct Way {
    port: u16,
    cut: Arc<AtomicBool>,
}

async fn way(to: String) -> Result<Way> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (port, cut) = (listener.local_addr()?.port(), Arc::new(AtomicBool::new(false)));
    let is_cut = cut.clone();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let (to, is_cut) = (to.clone(), is_cut.clone());
            tokio::spawn(async move {
                let watched = async {
                    while !is_cut.load(Relaxed) {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                };
                let Ok(mut far) = TcpStream::connect(&to).await else {
                    return;
                };
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    () = watched => {}
                }
            });
        }
    });
    Ok(Way { port, cut })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn messages_stay_hidden_while_the_database_is_away() -> Result<()> {
    for server in postgres_servers() {
        for emulator in emulators() {
            let mut bed = Bed::new(&server, &emulator, "sqs::outage", false).await?;
            let (who, place) = bed.database.url.split_once('@').context("a url with a user")?;
            let (host, name) = place.split_once('/').context("a url with a database")?;
            let way = way(host.to_owned()).await?;
            let crew = bed.work(at_once());
            let job = bed.enqueue("one", true).await?;
            let direct = bed.admin.clone();
            bed.admin = Admin::open(&format!("{who}@127.0.0.1:{}/{name}", way.port), "rowlock")?;
            let mut config = bed.config();
            config.role = Role::Consume;
            let bridge = bed.bridge(config)?;
            let first = bed.enqueue("first", true).await?;
            bed.point(first).await?;
            until("the bridge to be at work", async || bridge.counts.read().deleted == 1).await;
            way.cut.store(true, Relaxed);
            bed.point(job).await?;
            until("the outage to be felt, for longer than the visibility", async || {
                let count = bridge.counts.read();
                count.database_failures >= 3 && count.extended >= 4
            })
            .await;
            assert_eq!(bridge.counts.read().received, 2, "{}: hidden all the time", bed.label);
            way.cut.store(false, Relaxed);
            bed.admin = direct;
            until("the job", async || {
                bed.state(job.0).await.is_ok_and(|state| state == State::Finished)
            })
            .await;
            bed.until_empty().await;
            let count = bridge.stop().await?;
            assert_eq!(
                (count.received, count.triggered, count.left),
                (2, 2, 0),
                "{}: {count:?}",
                bed.label
            );
            assert_eq!(bed.ledger().await?, ["first", "one"]);
            crew.stop().await?;
            bed.remove().await?;
        }
    }
    Ok(())
}
