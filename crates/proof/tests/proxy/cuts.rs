//! Each way to cut a COMMIT, in each way that it travels: what the client sees, what the database has, and that the log
//! says just that.

use std::time::{Duration, Instant};

use proof::proxy::{Carrier, Commit, CommitCut, Event, Kind};
use sqlx::{AssertSqlSafe, PgConnection};

use super::site::{FOR_EVER, Site, until};

const CARRIERS: [Carrier; 3] = [Carrier::Alone, Carrier::Among, Carrier::Prepared];

const ROWS: &str = "select count(*) from ledger";

/// Writes a row in a transaction, with a text before the COMMIT in the same message where it is one among others.
async fn write(conn: &mut PgConnection, carrier: Carrier, before: &str) -> sqlx::Result<()> {
    sqlx::raw_sql("begin; insert into ledger (job) values (1)")
        .execute(&mut *conn)
        .await?;
    commit(conn, carrier, before).await
}

async fn commit(conn: &mut PgConnection, carrier: Carrier, before: &str) -> sqlx::Result<()> {
    match carrier {
        Carrier::Alone => sqlx::raw_sql("commit").execute(conn).await,
        Carrier::Among => {
            let text = format!("{before}; commit; begin; savepoint s");
            sqlx::raw_sql(AssertSqlSafe(text)).execute(conn).await
        }
        Carrier::Prepared => sqlx::query("commit").execute(conn).await,
    }
    .map(drop)
}

fn last(site: &Site) -> Event {
    site.proxy.events().pop().unwrap()
}

fn met(carrier: Carrier, sent: bool, committed: Option<bool>) -> Option<Commit> {
    Some(Commit {
        carrier,
        sent,
        committed,
    })
}

async fn a_commit_cut_before_it_is_sent_never_happens(site: &Site) {
    for carrier in CARRIERS {
        site.proxy.cut_commits(None, CommitCut::BeforeSent, 1);
        let mut conn = site.through().await;
        write(&mut conn, carrier, "select 1").await.unwrap_err();
        let event = last(site);
        assert_eq!(
            (event.kind, event.commit),
            (Kind::BeforeSent, met(carrier, false, Some(false)))
        );
        let open = "select count(*) from pg_stat_activity \
                    where datname = current_database() and state like 'idle in transaction%'";
        until("the server to notice", async || site.count(open).await == 0).await;
        assert_eq!(site.count(ROWS).await, 0, "{carrier:?}");
    }
    assert_eq!(site.proxy.commit_cuts(None).not_committed, 3);
}

async fn a_commit_cut_in_or_before_its_reply_has_happened(site: &Site) {
    let cuts = [
        (CommitCut::Unanswered, Kind::Unanswered),
        (CommitCut::AfterComplete, Kind::AfterComplete),
        (CommitCut::BeforeReady, Kind::BeforeReady),
        (CommitCut::MidFrame, Kind::MidFrame),
    ];
    let mut rows = 0;
    for (cut, kind) in cuts {
        for carrier in CARRIERS {
            site.proxy.cut_commits(None, cut, 1);
            let mut conn = site.through().await;
            write(&mut conn, carrier, "select 1").await.unwrap_err();
            rows += 1;
            assert_eq!(site.count(ROWS).await, rows, "{kind:?} {carrier:?}");
            let event = last(site);
            assert_eq!((event.kind, event.commit), (kind, met(carrier, true, Some(true))));
        }
        assert_eq!(site.happened(kind), 3);
    }
    assert_eq!(site.proxy.commit_cuts(None).committed, 12);
}

async fn a_commit_cut_as_soon_as_it_is_sent_happens_without_its_client(site: &Site) {
    for (rows, carrier) in (1..).zip(CARRIERS) {
        site.proxy.cut_commits(None, CommitCut::AfterSent, 1);
        let mut conn = site.through().await;
        write(&mut conn, carrier, "select 1").await.unwrap_err();
        until("the server's word", async || {
            last(site).commit == met(carrier, true, Some(true))
        })
        .await;
        assert_eq!(site.count(ROWS).await, rows, "{carrier:?}");
    }
}

async fn a_late_commit_happens_when_its_client_is_long_gone(site: &Site) {
    for (rows, carrier) in (1..).zip(CARRIERS) {
        site.proxy.cut_commits(None, CommitCut::Late(FOR_EVER), 1);
        let mut conn = site.through().await;
        write(&mut conn, carrier, "select 1").await.unwrap_err();
        assert_eq!(last(site).commit, met(carrier, false, None));
        assert_eq!(site.count(ROWS).await, rows - 1, "{carrier:?}");
        site.proxy.calm();
        until("the server's word", async || {
            last(site).commit == met(carrier, true, Some(true))
        })
        .await;
        assert_eq!(site.count(ROWS).await, rows, "{carrier:?}");
    }
    assert_eq!(site.happened(Kind::Late), 3);
}

async fn a_delayed_reply_comes_and_nothing_is_cut(site: &Site) {
    let late = Duration::from_millis(300);
    for (rows, carrier) in (1..).zip(CARRIERS) {
        site.proxy.cut_commits(None, CommitCut::DelayedReply(late), 1);
        let mut conn = site.through().await;
        let began = Instant::now();
        write(&mut conn, carrier, "select 1").await.unwrap();
        assert!(began.elapsed() >= late, "{carrier:?}");
        assert_eq!(site.count(ROWS).await, rows, "{carrier:?}");
        let event = last(site);
        assert_eq!(
            (event.kind, event.commit),
            (Kind::DelayedReply, met(carrier, true, Some(true)))
        );
    }
    let cuts = site.proxy.commit_cuts(None);
    assert_eq!(cuts.committed + cuts.not_committed + cuts.unknown, 0);
}

async fn a_commit_that_the_server_refuses_is_told_as_such(site: &Site) {
    site.run("create table parent (id bigint primary key)").await;
    site.run("create table child (parent bigint references parent (id) deferrable initially deferred)")
        .await;
    let refused = [
        ("insert into child values (7)", Carrier::Alone),
        ("insert into child values (7)", Carrier::Among),
        ("insert into child values (7)", Carrier::Prepared),
        ("select 1/0", Carrier::Alone),
        ("select 1/0", Carrier::Prepared),
    ];
    for cut in [CommitCut::Unanswered, CommitCut::MidFrame, CommitCut::AfterComplete] {
        for (broken, carrier) in refused {
            let mut conn = site.through().await;
            sqlx::raw_sql("begin").execute(&mut conn).await.unwrap();
            // What fails here makes the COMMIT a ROLLBACK.
            let _ = sqlx::raw_sql(broken).execute(&mut conn).await;
            site.proxy.cut_commits(None, cut, 1);
            commit(&mut conn, carrier, "select 1").await.unwrap_err();
            assert_eq!(last(site).commit, met(carrier, true, Some(false)), "{broken} {cut:?}");
        }
        let mut conn = site.through().await;
        site.proxy.cut_commits(None, cut, 1);
        write(&mut conn, Carrier::Among, "select 1/0").await.unwrap_err();
        let commit = last(site).commit;
        assert_eq!(
            commit,
            met(Carrier::Among, true, Some(false)),
            "an error before the COMMIT"
        );
    }
    assert_eq!(
        site.count(ROWS).await + site.count("select count(*) from child").await,
        0
    );
}

async fn a_commit_at_the_end_of_a_long_text_is_found_and_one_in_a_literal_is_not(site: &Site) {
    let literal = format!(
        "select $rl$; commit; {} ; commit; $rl$, '; commit;'",
        "x".repeat(300_000)
    );
    site.proxy.cut_commits(None, CommitCut::BeforeSent, 1);
    let mut conn = site.through().await;
    sqlx::raw_sql(AssertSqlSafe(literal.clone()))
        .execute(&mut conn)
        .await
        .unwrap();
    assert_eq!(site.proxy.events().len(), 0, "no COMMIT was seen");
    write(&mut conn, Carrier::Among, &literal).await.unwrap_err();
    assert_eq!(last(site).commit, met(Carrier::Among, false, Some(false)));

    site.proxy.cut_commits(None, CommitCut::Unanswered, 1);
    let mut conn = site.through().await;
    write(&mut conn, Carrier::Among, &literal).await.unwrap_err();
    assert_eq!(last(site).commit, met(Carrier::Among, true, Some(true)));
    assert_eq!(site.count(ROWS).await, 1);
}

mod tests {
    crate::proxy::site::cases!(bare:
        a_commit_cut_before_it_is_sent_never_happens,
        a_commit_cut_in_or_before_its_reply_has_happened,
        a_commit_cut_as_soon_as_it_is_sent_happens_without_its_client,
        a_late_commit_happens_when_its_client_is_long_gone,
        a_delayed_reply_comes_and_nothing_is_cut,
        a_commit_that_the_server_refuses_is_told_as_such,
        a_commit_at_the_end_of_a_long_text_is_found_and_one_in_a_literal_is_not,
    );
}
