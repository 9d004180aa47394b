//! The where-status pattern on the user's own tables: of two concurrent callers one moves the row, and nothing that a
//! caller says is ever read as SQL.

use rowlock::{AlreadyHandled, Ended, Error, atomic, handle::RowId};
use sqlx::Connection;
use uuid::Uuid;

use super::db::{Conn, Ctx, Tx};
use super::{Bed, Note, write};

async fn orders(bed: &Bed) {
    bed.run(
        "create table orders (id bigint primary key, status text not null, \"select\" text not null default 'a');
         insert into orders (id, status) values (1, 'pending'), (2, 'pending')",
    )
    .await;
}

async fn status(bed: &Bed, id: i64) -> String {
    let status = sqlx::query_scalar("select status from orders where id = $1").bind(id);
    status.fetch_one(&mut bed.conn().await).await.unwrap()
}

/// Makes one move and commits it.
async fn pay(bed: &Bed, conn: &mut Conn, id: i64) -> rowlock::Result<()> {
    let mut tx = conn.begin().await.unwrap();
    bed.rowlock.transition(&mut tx, "orders", id, "pending", "paid").await?;
    tx.commit().await.unwrap();
    Ok(())
}

async fn a_row_is_moved_once_and_the_next_one_hears_that_it_was_handled(bed: &Bed) {
    orders(bed).await;
    let mut conn = bed.conn().await;
    pay(bed, &mut conn, 1).await.unwrap();
    assert_eq!(
        (status(bed, 1).await, status(bed, 2).await),
        ("paid".into(), "pending".into())
    );

    let again = pay(bed, &mut conn, 1).await.unwrap_err();
    assert!(matches!(again, Error::AlreadyHandled { .. }), "{again:?}");
    assert_eq!(
        again.to_string(),
        "row 1 of orders does not have the status \"pending\""
    );
    let source = std::error::Error::source(&again).unwrap();
    assert!(source.is::<AlreadyHandled>(), "{source:?}");
    let nobody = pay(bed, &mut conn, 99).await.unwrap_err();
    assert!(matches!(nobody, Error::AlreadyHandled { .. }), "{nobody:?}");
}

async fn of_many_who_move_one_row_at_once_one_does(bed: &Bed) {
    orders(bed).await;
    let mut racers = Vec::new();
    for _ in 0..8 {
        let (rowlock, mut conn) = (bed.rowlock.clone(), bed.conn().await);
        racers.push(tokio::spawn(async move {
            let mut tx = conn.begin().await.unwrap();
            let moved = rowlock.transition(&mut tx, "orders", 1, "pending", "paid").await;
            if moved.is_ok() {
                tx.commit().await.unwrap();
            }
            moved
        }));
    }
    let mut moved = 0;
    for racer in racers {
        match racer.await.unwrap() {
            Ok(()) => moved += 1,
            Err(e) => assert!(matches!(e, Error::AlreadyHandled { .. }), "{e:?}"),
        }
    }
    assert_eq!((moved, status(bed, 1).await), (1, "paid".into()));
}

async fn the_same_job_several_times_at_once_moves_the_row_once_and_the_others_are_done_quietly(bed: &Bed) {
    orders(bed).await;
    let ids = bed
        .rowlock
        .enqueue_all_now(["a", "b", "c", "d"].map(Note::new))
        .await
        .unwrap();
    let handler = |cx: Ctx, _: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), "paid").await?;
        tx.transition("orders", 1, "pending", "paid").await?;
        tx.done().ok()
    };
    let counters = bed.work(bed.worker().handle(atomic(handler)), &ids).await;
    assert_eq!((bed.ledger().await, status(bed, 1).await), (1, "paid".into()));
    assert_eq!((counters.settled(Ended::Done), counters.already_handled()), (4, 3));
}

async fn other_columns_and_words_of_sqls_own_are_named_as_they_are(bed: &Bed) {
    orders(bed).await;
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    let step = bed.rowlock.transition(&mut tx, "orders", "pending", "a", "b");
    let two = step.column("select").id_column("status").await.unwrap_err();
    assert_eq!(
        two.to_string(),
        "id_column: \"status\" matches 2 rows of orders; roll back, and use a unique column"
    );
    tx.rollback().await.unwrap();

    let main = if bed.database.is_sqlite() {
        "main.orders"
    } else {
        "public.orders"
    };
    let mut tx = conn.begin().await.unwrap();
    let step = bed.rowlock.transition(&mut tx, main, 1, "a", "it's \"b\"; --");
    step.column("select").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        bed.count("select count(*) from orders where \"select\" = 'it''s \"b\"; --'")
            .await,
        1
    );
    for wrong in [
        ("orders", "statu", "id"),
        ("orders", "status", "idd"),
        ("order", "status", "id"),
    ] {
        let mut tx = conn.begin().await.unwrap();
        let step = bed.rowlock.transition(&mut tx, wrong.0, 1, "pending", "paid");
        let told = step.column(wrong.1).id_column(wrong.2).await.unwrap_err();
        assert!(
            matches!(told, Error::Database { .. }),
            "a typing error is no handled row: {told:?}"
        );
        tx.rollback().await.unwrap();
    }
}

async fn a_name_that_could_be_more_than_a_name_is_refused_before_any_sql(bed: &Bed) {
    orders(bed).await;
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    let attempts = [
        "orders; drop table orders",
        "orders\" set status = 'paid' --",
        "a.b.c",
        "orders as own set status = 'paid' --",
        "(select 1)",
        "",
    ];
    for table in attempts {
        let refused = bed
            .rowlock
            .transition(&mut tx, table, 1, "pending", "paid")
            .await
            .unwrap_err();
        assert!(
            matches!(&refused, Error::Invalid { field, .. } if field == "table"),
            "{refused:?}"
        );
        let step = bed.rowlock.transition(&mut tx, "orders", 1, "pending", "paid");
        let refused = step.column(table).await.unwrap_err();
        assert!(
            matches!(&refused, Error::Invalid { field, .. } if field == "column"),
            "{refused:?}"
        );
        let step = bed.rowlock.transition(&mut tx, "orders", 1, "pending", "paid");
        let refused = step.id_column(table).await.unwrap_err();
        assert!(
            matches!(&refused, Error::Invalid { field, .. } if field == "id_column"),
            "{refused:?}"
        );
    }
    for text in ["\\' or 1=1 --", "a\0b"] {
        for (id, from, to) in [(text, "pending", "paid"), ("1", text, "paid"), ("1", "pending", text)] {
            let refused = bed
                .rowlock
                .transition(&mut tx, "orders", id, from, to)
                .await
                .unwrap_err();
            assert!(matches!(refused, Error::Invalid { .. }), "{refused:?}");
        }
    }
    bed.rowlock
        .transition(&mut tx, "orders", 1, "pending", "paid")
        .await
        .expect("the transaction is as good as before");
}

/// Texts may hold anything else; they stay texts.
async fn a_move_to_the_same_status_is_refused_before_any_sql(bed: &Bed) {
    orders(bed).await;
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    let same = bed.rowlock.transition(&mut tx, "orders", 1, "pending", "pending");
    assert_eq!(
        same.await.unwrap_err().to_string(),
        "to: \"pending\" is also the status it starts from; use another status"
    );
    let moved = bed.rowlock.transition(&mut tx, "orders", 1, "pending", "paid");
    moved.await.unwrap();
}

async fn a_text_stays_a_text_whatever_it_holds(bed: &Bed) {
    orders(bed).await;
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    for text in [
        "pending' or '1'='1",
        "'",
        "''",
        "x'; drop table orders; --",
        "$1 ?1 :a {}",
        "é 😀\n",
    ] {
        let told = bed
            .rowlock
            .transition(&mut tx, "orders", 1, text, "paid")
            .await
            .unwrap_err();
        assert!(matches!(told, Error::AlreadyHandled { .. }), "{text}: {told:?}");
    }
    let (mut now, odd) = (
        "pending",
        ["x'; drop table orders; --", "'' or 1=1", "$1 ?1 'row_id' own.name"],
    );
    for next in odd {
        bed.rowlock.transition(&mut tx, "orders", 1, now, next).await.unwrap();
        now = next;
    }
    tx.commit().await.unwrap();
    assert_eq!(
        (status(bed, 1).await, status(bed, 2).await),
        (now.to_owned(), "pending".into())
    );
}

async fn rows_are_named_by_number_text_or_uuid(bed: &Bed) {
    let uuid = Uuid::now_v7();
    let (kind, blob) = match bed.database.is_sqlite() {
        true => ("blob", format!("x'{}'", uuid.simple())),
        false => ("uuid", format!("'{uuid}'")),
    };
    bed.run_as_it_is(&format!(
        "create table things (no int not null, word text not null, typed {kind} not null, spelt text not null, status int not null);
         insert into things values (-7, 'it''s', {blob}, '{uuid}', 1), (8, '8', {other}, 'x', 1)",
        other = blob.replace(['0', '1'], "f"),
    ))
    .await;
    let ids: [(&str, RowId); 8] = [
        ("no", RowId::from(-7)),
        ("no", RowId::from(-7i64)),
        ("no", RowId::from("-7")),
        ("word", RowId::from("it's")),
        ("word", RowId::from("it's".to_owned())),
        ("typed", RowId::from(uuid)),
        ("spelt", RowId::from(uuid)),
        ("spelt", RowId::from(uuid.to_string())),
    ];
    let mut conn = bed.conn().await;
    for (n, (column, id)) in (1..).zip(ids) {
        let mut tx = conn.begin().await.unwrap();
        let (from, to) = (n.to_string(), (n + 1).to_string());
        let moved = bed.rowlock.transition(&mut tx, "things", id.clone(), from, to);
        moved
            .id_column(column)
            .await
            .unwrap_or_else(|e| panic!("{column} {id:?}: {e:?}"));
        tx.commit().await.unwrap();
    }
    assert_eq!(
        bed.count("select count(*) from things where no = -7 and status = 9")
            .await,
        1
    );
    assert_eq!(
        bed.count("select count(*) from things where no = 8 and status = 1")
            .await,
        1
    );
    // A text column may hold what looks like a number.
    let mut tx = conn.begin().await.unwrap();
    let moved = bed.rowlock.transition(&mut tx, "things", 8, "1", "2");
    moved.id_column("word").await.unwrap();
}

mod tests {
    super::super::cases!(
        a_row_is_moved_once_and_the_next_one_hears_that_it_was_handled,
        of_many_who_move_one_row_at_once_one_does,
        the_same_job_several_times_at_once_moves_the_row_once_and_the_others_are_done_quietly,
        other_columns_and_words_of_sqls_own_are_named_as_they_are,
        a_name_that_could_be_more_than_a_name_is_refused_before_any_sql,
        a_move_to_the_same_status_is_refused_before_any_sql,
        a_text_stays_a_text_whatever_it_holds,
        rows_are_named_by_number_text_or_uuid,
    );
}
