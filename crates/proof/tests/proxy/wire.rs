//! The proxy as a network: what goes in comes out, and each trouble is what it says.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use proof::proxy::{CommitCut, Kind, Proxy, Trouble, Way};
use sqlx::{Connection, PgConnection};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::site::{FOR_EVER, Site, until};

/// A client that speaks frames by hand.
struct Raw {
    stream: TcpStream,
    /// What a cancel request has to say.
    key: Vec<u8>,
}

impl Raw {
    /// Starts up after a wish for this kind of encryption, if any.
    async fn connect(address: SocketAddr, database: &str, wish: Option<u32>) -> Raw {
        let mut stream = TcpStream::connect(address).await.unwrap();
        if let Some(code) = wish {
            let request = [8_u32.to_be_bytes(), code.to_be_bytes()].concat();
            stream.write_all(&request).await.unwrap();
            assert_eq!(stream.read_u8().await.unwrap(), b'N', "nothing is encrypted");
        }
        let settings = format!("user\0tester\0database\0{database}\0application_name\0raw\0\0");
        let length = u32::try_from(8 + settings.len()).unwrap();
        let packet = [&length.to_be_bytes(), &196_608_u32.to_be_bytes(), settings.as_bytes()].concat();
        stream.write_all(&packet).await.unwrap();
        let mut raw = Raw {
            stream,
            key: Vec::new(),
        };
        raw.until_ready().await.unwrap();
        raw
    }

    async fn send(&mut self, sql: &str) {
        let length = u32::try_from(5 + sql.len()).unwrap();
        let frame = [&b"Q"[..], &length.to_be_bytes(), sql.as_bytes(), b"\0"].concat();
        self.stream.write_all(&frame).await.unwrap();
    }

    /// The letters of the frames up to the end of a reply.
    async fn until_ready(&mut self) -> io::Result<String> {
        let mut letters = String::new();
        while !letters.ends_with('Z') {
            let letter = self.stream.read_u8().await?;
            let mut body = vec![0; self.stream.read_u32().await? as usize - 4];
            self.stream.read_exact(&mut body).await?;
            if letter == b'K' {
                self.key = body;
            }
            letters.push(letter.into());
        }
        Ok(letters)
    }
}

fn name(site: &Site) -> &str {
    site.database.url.rsplit_once('/').unwrap().1
}

async fn a_wish_for_encryption_is_declined_and_the_start_up_follows(site: &Site) {
    for wish in [None, Some(80_877_103), Some(80_877_104)] {
        let mut raw = Raw::connect(site.proxy.address(), name(site), wish).await;
        raw.send("select 1").await;
        assert_eq!(raw.until_ready().await.unwrap(), "TDCZ");
    }
}

async fn a_cancel_request_reaches_the_server(site: &Site) {
    let mut raw = Raw::connect(site.proxy.address(), name(site), None).await;
    raw.send("select pg_sleep(600)").await;
    let asleep = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
    until("the statement to run", async || site.count(asleep).await == 1).await;
    let mut other = TcpStream::connect(site.proxy.address()).await.unwrap();
    let request = [&16_u32.to_be_bytes()[..], &80_877_102_u32.to_be_bytes(), &raw.key].concat();
    other.write_all(&request).await.unwrap();
    assert_eq!(raw.until_ready().await.unwrap(), "TEZ");
}

/// A text there and back, and its length by the server.
async fn echo(conn: &mut PgConnection, text: &str) {
    let echo = sqlx::query_as::<_, (String, i32)>("select $1, length($1)").bind(text);
    let (echo, length) = echo.fetch_one(conn).await.unwrap();
    assert!(echo == text, "the text came back as another");
    assert_eq!(length as usize, text.len());
}

async fn frames_of_every_size_pass_both_ways(site: &Site) {
    let mut conn = site.through().await;
    for size in [0, 1, 16_000, 16_384, 65_536, 3_000_000] {
        echo(&mut conn, &"x".repeat(size)).await;
    }
    assert_eq!(site.proxy.events().len(), 0);
    assert_eq!(site.proxy.open(), 1);
    conn.close().await.unwrap();
    until("the connection to be gone", async || site.proxy.open() == 0).await;
}

async fn bytes_written_one_by_one_say_the_same(site: &Site) {
    site.proxy.begin(Trouble::OneByte);
    let mut conn = site.through().await;
    echo(&mut conn, &"x".repeat(40_000)).await;
    assert_eq!(site.happened(Kind::OneByte), 2, "once per direction");
}

async fn latency_delays_every_frame_and_ends_when_calm(site: &Site) {
    let mut conn = site.through().await;
    let (base, jitter) = (Duration::from_millis(100), Duration::from_millis(20));
    site.proxy.begin(Trouble::Latency { base, jitter });
    let began = Instant::now();
    let series = sqlx::raw_sql("select generate_series(1, 200)");
    series.execute(&mut conn).await.unwrap();
    let took = began.elapsed();
    assert!(took >= base * 2, "there and back in {took:?}");
    assert!(
        took < base * 100,
        "the frames of a reply wait together, not one after the other: {took:?}"
    );
    assert_eq!(site.happened(Kind::Latency), 2);
    site.proxy.begin(Trouble::Latency { base: FOR_EVER, jitter });
    let asked = sqlx::raw_sql("select 1").execute(&mut conn);
    let (asked, ()) = tokio::join!(asked, async {
        until("the frame to wait", async || site.happened(Kind::Latency) >= 3).await;
        site.proxy.calm();
    });
    asked.unwrap();
}

async fn a_hole_keeps_back_one_direction_and_delivers_when_calm(site: &Site) {
    const ROWS: &str = "select count(*) from ledger";
    for (way, kind, seen) in [(Way::Up, Kind::HoleUp, 0), (Way::Down, Kind::HoleDown, 1)] {
        site.run("delete from ledger").await;
        let mut conn = site.through().await;
        site.proxy.begin(Trouble::Blackhole(way));
        let insert = sqlx::raw_sql("insert into ledger (job) values (1)").execute(&mut conn);
        let (inserted, ()) = tokio::join!(insert, async {
            until("something to be kept back", async || site.happened(kind) >= 1).await;
            assert_eq!(site.count(ROWS).await, seen, "{way:?}");
            site.proxy.calm();
        });
        inserted.unwrap();
        assert_eq!(site.count(ROWS).await, 1, "{way:?}");
    }
}

async fn what_a_client_sent_into_a_hole_arrives_although_it_gave_up(site: &Site) {
    let mut raw = Raw::connect(site.proxy.address(), name(site), None).await;
    site.proxy.begin(Trouble::Blackhole(Way::Up));
    raw.send("insert into ledger (job) values (1)").await;
    drop(raw);
    until("it to be kept back", async || site.happened(Kind::HoleUp) >= 1).await;
    let backends =
        "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'raw'";
    assert_eq!(site.count(backends).await, 1, "the server knows nothing of the end");
    assert_eq!(site.count("select count(*) from ledger").await, 0);
    site.proxy.calm();
    until("it to arrive", async || {
        site.count("select count(*) from ledger").await == 1 && site.count(backends).await == 0
    })
    .await;
}

async fn a_reset_is_an_error_and_no_end(site: &Site) {
    let mut raw = Raw::connect(site.proxy.address(), name(site), None).await;
    let mut other = site.through().await;
    site.proxy.reset();
    let error = raw.until_ready().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    sqlx::raw_sql("select 1").execute(&mut other).await.unwrap_err();
    until("both to be told", async || site.happened(Kind::Reset) == 2).await;
    let names: Vec<String> = site.proxy.events().into_iter().map(|event| event.name).collect();
    assert!(names.contains(&"raw".to_owned()), "{names:?}");
    echo(&mut site.through().await, "it does not last").await;
}

async fn refused_connections_are_turned_away_and_open_ones_stay(site: &Site) {
    let mut open = site.through().await;
    site.proxy.begin(Trouble::Refuse);
    for _ in 0..3 {
        PgConnection::connect(&site.url()).await.map(drop).unwrap_err();
    }
    echo(&mut open, "still there").await;
    assert_eq!(site.happened(Kind::Refused), 3);
    site.proxy.calm();
    echo(&mut site.through().await, "and let in again").await;
}

async fn a_trouble_with_a_limit_ends_by_itself(site: &Site) {
    let mut conn = site.through().await;
    let lasts = Duration::from_millis(300);
    let began = Instant::now();
    site.proxy.begin_for(Trouble::Blackhole(Way::Up), lasts);
    echo(&mut conn, "late").await;
    assert!(began.elapsed() >= lasts);
    assert_eq!(site.happened(Kind::HoleUp), 1);
    echo(&mut conn, "as ever").await;
    assert_eq!(site.proxy.events().len(), 1);
}

async fn odd_bytes_cost_no_connection_but_their_own(site: &Site) {
    let mut other = site.through().await;
    for _ in 0..200 {
        let mut stream = match fastrand::bool() {
            true => TcpStream::connect(site.proxy.address()).await.unwrap(),
            false => Raw::connect(site.proxy.address(), name(site), None).await.stream,
        };
        let odd: Vec<u8> = (0..100).map(|_| fastrand::u8(..)).collect();
        stream.write_all(&odd).await.unwrap();
        stream.shutdown().await.unwrap();
        // What the server makes of it, or a reset.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    echo(&mut other, "still there").await;
    until("the others to be gone", async || site.proxy.open() == 1).await;
}

/// Whatever they wait for: a client, a server, the end of a hole or of a delay.
async fn a_proxy_that_is_dropped_leaves_nothing_open(site: &Site) {
    const OPEN: &str =
        "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'dropped'";
    let proxy = Proxy::before(&site.database.url, 1).await.unwrap();
    let url = format!("{}?application_name=dropped", proxy.url(&site.database.url).unwrap());
    let silent = TcpStream::connect(proxy.address()).await.unwrap();
    let idle = PgConnection::connect(&url).await.unwrap();
    let mut commits = Vec::new();
    for cut in [CommitCut::Late(FOR_EVER), CommitCut::DelayedReply(FOR_EVER)] {
        let mut conn = PgConnection::connect(&url).await.unwrap();
        sqlx::raw_sql("begin").execute(&mut conn).await.unwrap();
        proxy.cut_commits(None, cut, 1);
        commits.push(tokio::spawn(async move {
            sqlx::raw_sql("commit").execute(&mut conn).await.map(drop)
        }));
        let cuts = commits.len();
        until("the cut", async || proxy.events().len() == cuts).await;
    }
    let mut asleep = PgConnection::connect(&url).await.unwrap();
    commits.push(tokio::spawn(async move {
        sqlx::raw_sql("select pg_sleep(3600)")
            .execute(&mut asleep)
            .await
            .map(drop)
    }));
    let mut kept = PgConnection::connect(&url).await.unwrap();
    proxy.begin(Trouble::Blackhole(Way::Up));
    commits.push(tokio::spawn(async move {
        sqlx::raw_sql("select 1").execute(&mut kept).await.map(drop)
    }));
    until("the hole", async || proxy.counts().contains_key(&Kind::HoleUp)).await;
    assert_eq!((proxy.open(), site.count(OPEN).await), (6, 5));

    let address = proxy.address();
    drop(proxy);
    for commit in commits {
        commit.await.unwrap().unwrap_err();
    }
    until("the port to be closed", async || {
        TcpStream::connect(address).await.is_err()
    })
    .await;
    // A backend that sleeps does not look at its connection.
    until("the server's side to be closed", async || site.count(OPEN).await == 1).await;
    drop((silent, idle));
}

mod tests {
    crate::proxy::site::cases!(bare:
        a_wish_for_encryption_is_declined_and_the_start_up_follows,
        a_cancel_request_reaches_the_server,
        frames_of_every_size_pass_both_ways,
        bytes_written_one_by_one_say_the_same,
        latency_delays_every_frame_and_ends_when_calm,
        a_hole_keeps_back_one_direction_and_delivers_when_calm,
        what_a_client_sent_into_a_hole_arrives_although_it_gave_up,
        a_reset_is_an_error_and_no_end,
        refused_connections_are_turned_away_and_open_ones_stay,
        a_trouble_with_a_limit_ends_by_itself,
        odd_bytes_cost_no_connection_but_their_own,
        a_proxy_that_is_dropped_leaves_nothing_open,
    );
}
