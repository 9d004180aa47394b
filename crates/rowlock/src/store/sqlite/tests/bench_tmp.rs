use super::*;
use std::time::Instant;

async fn hammer(store: SqliteStore, n: usize, for_ms: u64) -> usize {
    let until = Instant::now() + Duration::from_millis(for_ms);
    let tasks: Vec<_> = (0..n)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut k = 0;
                while Instant::now() < until {
                    store.enqueue(&[numbered(1)]).await.unwrap();
                    k += 1;
                }
                k
            })
        })
        .collect();
    let mut t = 0;
    for x in tasks {
        t += x.await.unwrap();
    }
    t
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore]
async fn numbers() {
    let rig = Rig::new().await;
    let drafts: Vec<Draft> = (0..1000).map(numbered).collect();
    let t = Instant::now();
    for _ in 0..10 {
        rig.store.enqueue(&drafts).await.unwrap();
    }
    println!("enqueue 1000: {:?} each", t.elapsed() / 10);
    let w = rig.worker().await;
    let t = Instant::now();
    let mut n = 0;
    loop {
        let jobs = claim(&rig.store, w, 100).await;
        if jobs.is_empty() {
            break;
        }
        n += jobs.len();
        let b: Vec<_> = jobs.iter().map(|j| settlement(j, Ended::Done)).collect();
        rig.store.settle(&b).await.unwrap();
    }
    println!(
        "claim+settle by 100: {} jobs in {:?} = {:.0}/s",
        n,
        t.elapsed(),
        n as f64 / t.elapsed().as_secs_f64()
    );
    for k in [1, 4, 16, 64] {
        println!("enqueue x{k}: {}/s", hammer(rig.store.clone(), k, 1000).await);
    }
    for k in [1, 4, 16] {
        let other = rig.another();
        let h = tokio::spawn(hammer(rig.store.clone(), k, 10_000));
        let mut lat = Vec::new();
        let mut err = 0;
        let until = Instant::now() + Duration::from_secs(9);
        while Instant::now() < until {
            let t = Instant::now();
            match other.beat(w).await {
                Ok(_) => {}
                Err(_) => err += 1,
            }
            lat.push(t.elapsed());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        lat.sort();
        println!(
            "hammer x{k}: {}/10s, beat p50 {:?} p90 {:?} p99 {:?} max {:?} n {} err {err}",
            h.await.unwrap(),
            lat[lat.len() / 2],
            lat[lat.len() * 9 / 10],
            lat[lat.len() * 99 / 100],
            lat.last(),
            lat.len()
        );
    }
}

async fn handlers(store: SqliteStore, n: usize, for_ms: u64) -> usize {
    use crate::store::Room;
    let until = Instant::now() + Duration::from_millis(for_ms);
    let tasks: Vec<_> = (0..n).map(|_| { let store = store.clone(); tokio::spawn(async move {
        let mut k = 0; while Instant::now() < until {
            let t = Token { id: 1, epoch: 1, worker: WorkerId(1) };
            let mut h = sqlx::Sqlite::begin(&store, &t, Timing::of_lease(LEASE)).await.unwrap();
            sqlx::raw_sql("insert into effect values (1)").execute(sqlx::Sqlite::conn(&mut h)).await.unwrap();
            sqlx::Sqlite::commit(&store, h).await.unwrap(); k += 1; } k }) }).collect();
    let mut t = 0; for x in tasks { t += x.await.unwrap(); } t
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore]
async fn polite() {
    let rig = Rig::new().await;
    let mut conn = rig.conn().await;
    sqlx::raw_sql("create table effect (n integer); create table app (n integer)").execute(&mut conn).await.unwrap();
    for k in [1, 4, 16, 100, 104, 116] {
        let h = if k < 100 { tokio::spawn(hammer(rig.store.clone(), k, 10_000)) } else { tokio::spawn(handlers(rig.store.clone(), k - 99, 10_000)) };
        let mut lat = Vec::new(); let mut err = 0;
        let until = Instant::now() + Duration::from_secs(9);
        while Instant::now() < until { let t = Instant::now();
            if sqlx::raw_sql("begin immediate; insert into app values (1); commit").execute(&mut conn).await.is_err() { err += 1 }
            lat.push(t.elapsed()); tokio::time::sleep(Duration::from_millis(5)).await; }
        lat.sort(); println!("saturate x{k}: {}/10s, app p50 {:?} p90 {:?} p99 {:?} max {:?} n {} err {err}", h.await.unwrap(), lat[lat.len()/2], lat[lat.len()*9/10], lat[lat.len()*99/100], lat.last(), lat.len());
    }
}
