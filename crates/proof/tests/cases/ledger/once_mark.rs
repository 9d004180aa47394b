//! Marks under a key: a refusal that is stored without the writes that led to it.

use rowlock::{
    Error,
    handle::{Once, OnceSlot},
};
use sqlx::{Pool, Transaction, pool::PoolOptions};

use super::Bed;
use super::db::Backend;
use super::once::{counted, counter, raise, taken};

/// A transaction of a pool with one connection, with the key taken and a mark set, and something written after it.
async fn marked(bed: &Bed, pool: &Pool<Backend>, key: &str) -> (Transaction<'static, Backend>, OnceSlot<Backend>) {
    let mut tx = bed.rowlock.begin(pool).await.unwrap();
    let Once::First(slot) = bed.rowlock.once(&mut tx, key).request_digest([7; 32]).await.unwrap() else {
        panic!("nobody was here before")
    };
    slot.mark(&mut tx).await.unwrap();
    raise(&mut tx).await;
    (tx, slot)
}

async fn one_connection(bed: &Bed) -> Pool<Backend> {
    let pool = PoolOptions::new().max_connections(1);
    pool.connect(&bed.database.url).await.unwrap()
}

async fn a_refusal_is_stored_without_the_writes_that_led_to_it(bed: &Bed) {
    counter(bed).await;
    let pool = one_connection(bed).await;
    let (mut tx, slot) = marked(bed, &pool, "k").await;
    slot.back_to_mark(&mut tx).await.unwrap();
    slot.store(&mut tx, "refused").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(counted(bed).await, 0);
    let mut tx = bed.rowlock.begin(&pool).await.unwrap();
    match bed.rowlock.once(&mut tx, "k").request_digest([7; 32]).await.unwrap() {
        Once::Seen(answer) => assert_eq!(answer.get::<String>().unwrap(), "refused"),
        Once::First(_) => panic!("the key is taken"),
    }
    let other = bed.rowlock.once(&mut tx, "k").request_digest([8; 32]).await;
    assert!(matches!(other, Err(Error::KeyConflict { .. })), "{other:?}");
    tx.rollback().await.unwrap();
    pool.close().await;
}

async fn each_key_goes_back_to_its_own_mark(bed: &Bed) {
    counter(bed).await;
    let pool = one_connection(bed).await;
    let (mut tx, outer) = marked(bed, &pool, "outer").await;
    let Once::First(inner) = bed.rowlock.once(&mut tx, "inner").await.unwrap() else {
        panic!("nobody was here before")
    };
    inner.mark(&mut tx).await.unwrap();
    assert_eq!(raise(&mut tx).await, 2);
    inner.back_to_mark(&mut tx).await.unwrap();
    assert_eq!(raise(&mut tx).await, 2, "the first raise is older than this mark");
    outer.back_to_mark(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(counted(bed).await, 0);
    let mut conn = bed.conn().await;
    assert!(
        taken(bed, &mut conn, "inner").await,
        "it was taken after the outer mark"
    );
    assert!(!taken(bed, &mut conn, "outer").await);
    pool.close().await;
}

async fn a_marked_transaction_that_is_dropped_keeps_nothing(bed: &Bed) {
    counter(bed).await;
    let pool = one_connection(bed).await;
    drop(marked(bed, &pool, "k").await);
    assert!(
        taken(bed, &mut pool.acquire().await.unwrap(), "k").await,
        "the key is free"
    );
    assert_eq!(counted(bed).await, 0);
    pool.close().await;
}

mod tests {
    super::super::cases!(
        a_refusal_is_stored_without_the_writes_that_led_to_it,
        each_key_goes_back_to_its_own_mark,
        a_marked_transaction_that_is_dropped_keeps_nothing,
    );
}
