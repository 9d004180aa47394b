use super::*;

fn refused(url: &str) -> String {
    match Hosts::parse(url) {
        Err(error) => error.to_string(),
        Ok(hosts) => panic!("{url} was read as {} hosts", hosts.all.len()),
    }
}

fn names(url: &str) -> Vec<String> {
    Hosts::parse(url).unwrap().all.iter().map(Host::name).collect()
}

#[test]
fn a_list_is_one_url_for_each_host() {
    for (url, wanted) in [
        ("postgres://h/db", vec!["postgres://h/db"]),
        (
            "postgres://h/db?target_session_attrs=any",
            vec!["postgres://h/db?target_session_attrs=any"],
        ),
        ("postgres://", vec!["postgres://"]),
        ("postgres://a,b:1/db", vec!["postgres://a/db", "postgres://b:1/db"]),
        (
            "postgresql://me:p,w@a:1,b:2,c:3/db?sslmode=disable&application_name=x,y",
            vec![
                "postgresql://me:p,w@a:1/db?sslmode=disable&application_name=x,y",
                "postgresql://me:p,w@b:2/db?sslmode=disable&application_name=x,y",
                "postgresql://me:p,w@c:3/db?sslmode=disable&application_name=x,y",
            ],
        ),
        (
            "postgres://a,b/db?target_session_attrs=read-write&sslmode=disable",
            vec!["postgres://a/db?sslmode=disable", "postgres://b/db?sslmode=disable"],
        ),
        (
            "postgres://a,b/db?target_session_attrs=primary",
            vec!["postgres://a/db", "postgres://b/db"],
        ),
        (
            "postgres://[::1]:5,[::2]/db",
            vec!["postgres://[::1]:5/db", "postgres://[::2]/db"],
        ),
        ("postgres://u@a,b", vec!["postgres://u@a", "postgres://u@b"]),
        ("postgres://u@a/db?pgbouncer=true", vec!["postgres://u@a/db"]),
        (
            "postgres://a,b/db?pgbouncer=true&sslmode=disable",
            vec!["postgres://a/db?sslmode=disable", "postgres://b/db?sslmode=disable"],
        ),
    ] {
        assert_eq!(Url::parse(url).unwrap().each, wanted, "{url}");
    }
    assert_eq!(names("postgres://u@a:7,b:8/db"), ["a:7", "b:8"]);
    assert_eq!(names("postgres://u@%2Frun%2Fpg,b:8/db"), ["/run/pg", "b:8"]);
}

#[test]
fn a_list_that_cannot_be_right_is_refused_in_words() {
    for (url, wanted) in [
        ("postgres://a,,b/db", "has no name for host 2 of 3"),
        ("postgres://,b/db", "has no name for host 1 of 2"),
        ("postgres://a,:5432/db", "has no name for host 2 of 2"),
        ("postgres://a:0,b/db", "an invalid port for host 1 of 2; use 1 to 65535"),
        (
            "postgres://a,b:65536/db",
            "an invalid port for host 2 of 2; use 1 to 65535",
        ),
        ("postgres://a,b:/db", "an invalid port for host 2 of 2; use 1 to 65535"),
        ("postgres://a,b/db?host=c", "also has the parameter host"),
        ("postgres://a,b/db?port=1", "also has the parameter port"),
        (
            "postgres:///db?host=a,b",
            "in the parameter host; write postgres://host1:5432,host2:5432/name",
        ),
        ("postgres:///db?host=a%2Cb", "in the parameter host"),
        (
            "postgres://a,b/db?target_session_attrs=standby",
            "use read-write or primary",
        ),
        ("postgres://a/db?pgbouncer=1", "use true or false, or remove it"),
        ("postgres://a b,c/db", "cannot be parsed"),
        (
            "postgres://localhost/x?sslmode=foo",
            "an unsupported value for sslmode; use disable, allow, prefer, require, verify-ca or verify-full, or remove it",
        ),
        (
            "postgres://a,b/x?application_name=me&ssl-mode=",
            "an unsupported value for ssl-mode; use disable",
        ),
        (
            "postgres://a/x?port=none",
            "an unsupported value for port; use 1 to 65535",
        ),
        ("postgres://a/x?port=none&sslmode=foo", "cannot be parsed"),
        ("postgres://a:x/db", "cannot be parsed; check its form and port"),
    ] {
        let said = refused(url);
        assert!(said.contains(wanted), "{url}: {said}");
    }
    let many = format!("postgres://{}/db", vec!["h"; 17].join(","));
    assert!(refused(&many).contains("names 17 hosts, at most 16"));
}

#[test]
fn no_refusal_quotes_a_password() {
    for url in [
        "postgres://me:secret,word/x@host/db",
        "postgres://me:secret/x@host,other/db",
        "postgres://me:1,secret/x@host/db",
        "postgres://me:secret@a,b:word/db",
        "postgres://a/db?password=secret&sslmode=word",
        "postgres://me:secret@a/db?port=word",
    ] {
        let said = refused(url);
        assert!(!said.contains("secret") && !said.contains("word;"), "{url}: {said}");
        assert!(!said.contains("word is"), "{url}: {said}");
    }
}

/// Opens only on the host `good`; returns the names of the hosts that were tried.
async fn tried(hosts: &Hosts, good: &str) -> (Vec<String>, sqlx::Result<()>) {
    let tried = Mutex::new(Vec::new());
    let found = hosts
        .find(async |options| {
            let name = options.get_host().to_owned();
            let answer = match name == good {
                true => Ok(()),
                false => Err(sqlx::Error::Configuration(Refusal::Standby.into())),
            };
            lock(&tried).push(name);
            answer
        })
        .await;
    (tried.into_inner().unwrap(), found)
}

#[tokio::test]
async fn hosts_are_tried_from_the_last_good_one_on() {
    let hosts = Hosts::parse("postgres://a,b,c/db").unwrap();
    assert_eq!(tried(&hosts, "b").await.0, ["a", "b"]);
    assert_eq!(tried(&hosts, "b").await.0, ["b"]);
    assert_eq!(tried(&hosts, "a").await.0, ["b", "c", "a"]);
    let (asked, found) = tried(&hosts, "none").await;
    assert_eq!(asked, ["a", "b", "c"]);
    assert_eq!(
        found.unwrap_err().to_string(),
        "error communicating with database: no host accepts writes (a:5432: standby, b:5432: standby, c:5432: standby)"
    );
}

#[tokio::test]
async fn a_single_host_that_does_not_answer_is_named_in_the_error() {
    let hosts = Hosts::parse("postgres://127.0.0.1:1/db").unwrap();
    let refused = hosts.find(async |_| Err::<(), _>(sqlx::Error::Io(ErrorKind::ConnectionRefused.into())));
    let error = refused.await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "error communicating with database: connection refused (127.0.0.1:1)"
    );
    assert!(matches!(error, sqlx::Error::Io(said) if said.kind() == ErrorKind::ConnectionRefused));
}

#[tokio::test]
async fn an_attempt_that_is_dropped_at_a_host_begins_with_the_next_one() {
    let hosts = Hosts::parse("postgres://a,b/db").unwrap();
    let silent = hosts.find(|_| std::future::pending::<sqlx::Result<()>>());
    assert!(tokio::time::timeout(Duration::from_millis(1), silent).await.is_err());
    assert_eq!(tried(&hosts, "b").await.0, ["b"]);
}

#[tokio::test]
async fn a_silent_host_costs_no_more_than_its_own_limit() {
    let mut hosts = Hosts::parse("postgres://a,b/db").unwrap();
    assert_eq!(hosts.limit, HOST_LIMIT);
    assert_eq!(Hosts::parse("postgres://a/db").unwrap().limit, CONNECT_LIMIT);
    hosts.limit = Duration::from_millis(20);
    let began = std::time::Instant::now();
    let found = hosts.find(async |options| match options.get_host() {
        "a" => std::future::pending().await,
        other => Ok(other.to_owned()),
    });
    assert_eq!(found.await.unwrap(), "b");
    assert!(began.elapsed() >= hosts.limit, "it was not waited for");
}

#[test]
fn another_timeline_ends_the_connections_before_it_and_claims_under_their_ids() {
    let hosts = Hosts::parse("postgres://a,b/db").unwrap();
    let (one, first) = hosts.meet("system 1".into());
    hosts.registered(WorkerId(7), one);
    assert_eq!(hosts.meet("system 1".into()), (one, first), "nothing has happened");
    assert!(hosts.is_home(WorkerId(7), one) && !hosts.has_moved(WorkerId(7)) && !hosts.has_left(one));
    let (two, second) = hosts.meet("system 2".into());
    assert_ne!(first, second);
    assert!(!hosts.is_home(WorkerId(7), two) && hosts.has_moved(WorkerId(7)) && hosts.has_left(one));
    hosts.registered(WorkerId(8), two);
    assert!(hosts.is_home(WorkerId(8), two) && !hosts.has_moved(WorkerId(8)));
    hosts.forget(WorkerId(7));
    assert!(hosts.is_home(WorkerId(7), two), "nothing is known of it");
}

#[test]
fn a_pooler_is_there_where_the_url_says_so() {
    for (url, wanted) in [
        ("postgres://a/db", false),
        ("postgres://a/db?pgbouncer=false", false),
        ("postgres://a/db?sslmode=disable&pgbouncer=true", true),
        ("postgres://a,b/db?pgbouncer=true", true),
    ] {
        assert_eq!(Hosts::parse(url).unwrap().pooler.is_some(), wanted, "{url}");
    }
}
