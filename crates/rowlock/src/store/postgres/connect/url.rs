//! What a URL contains: its hosts, one by one, and whether connections go through a pooler.

use crate::error::{Error, Result};

const HOSTS_MAX: usize = 16;

/// The form of a host list, for the error.
const FORM: &str = "write postgres://host1:5432,host2:5432/name";

/// A parsed URL.
pub struct Url {
    /// One URL for each host, because the driver accepts one host only. The list has libpq's syntax.
    pub each: Vec<String>,
    /// Whether connections go through a pooler that assigns a server for one transaction at a time.
    pub pooled: bool,
}

impl Url {
    /// # Errors
    /// [`Error::Config`], which quotes nothing.
    pub fn parse(url: &str) -> Result<Url> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (user, list) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let listed = list.contains(',');
        let Query { kept, pooled } = Query::parse(query, listed)?;
        if !listed && pooled.is_none() {
            return Ok(Url {
                each: vec![url.to_owned()],
                pooled: false,
            });
        }
        let hosts: Vec<&str> = list.split(',').collect();
        if listed {
            check_list(&hosts, path)?;
        }
        let kept = if kept.is_empty() {
            String::new()
        } else {
            format!("?{}", kept.join("&"))
        };
        let alone = |host: &&str| format!("{scheme}://{user}{host}{path}{kept}");
        Ok(Url {
            each: hosts.iter().map(alone).collect(),
            pooled: pooled.unwrap_or(false),
        })
    }
}

/// The part of the URL after the question mark.
struct Query<'a> {
    /// The parameters that are passed to the driver.
    kept: Vec<&'a str>,
    /// What the parameters say about a pooler, if anything.
    pooled: Option<bool>,
}

impl<'a> Query<'a> {
    fn parse(query: &'a str, listed: bool) -> Result<Query<'a>> {
        let mut kept = Vec::new();
        let mut pooled = None;
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let many = value.contains(',') || value.contains("%2C") || value.contains("%2c");
            match (key, value) {
                ("host" | "hostaddr" | "port", _) if listed => {
                    return wrong(format!(
                        "the PostgreSQL URL lists its hosts and also has the parameter {key}; remove one of them"
                    ));
                }
                ("host" | "hostaddr" | "port", _) if many => {
                    return wrong(format!(
                        "the PostgreSQL URL lists its hosts in the parameter {key}; {FORM}"
                    ));
                }
                ("target_session_attrs", "read-write" | "primary") if listed => {}
                ("target_session_attrs", _) if listed => {
                    return wrong(
                        "the PostgreSQL URL has an unsupported target_session_attrs; use read-write or primary, or \
                         remove it"
                            .into(),
                    );
                }
                ("pgbouncer", "true") => pooled = Some(true),
                ("pgbouncer", "false") => pooled = Some(false),
                ("pgbouncer", _) => {
                    return wrong(
                        "the PostgreSQL URL has an unsupported value for pgbouncer; use true or false, or remove it"
                            .into(),
                    );
                }
                _ => kept.push(parameter),
            }
        }
        Ok(Query { kept, pooled })
    }
}

/// Parameters that the driver parses, and the values that it accepts for each.
const PARSED: [(&str, &str); 5] = [
    ("sslmode", SSL_MODES),
    ("ssl-mode", SSL_MODES),
    ("port", "1 to 65535"),
    ("hostaddr", "an IP address"),
    ("statement-cache-capacity", "a whole number"),
];

const SSL_MODES: &str = "disable, allow, prefer, require, verify-ca or verify-full";

/// The parameter whose removal makes `parses` accept the URL, and the values that it may have.
pub fn bad_parameter(url: &str, parses: impl Fn(&str) -> bool) -> Option<(&'static str, &'static str)> {
    let (before, query) = url.split_once('?')?;
    PARSED.into_iter().find(|(name, _)| {
        let others = query.split('&').filter(|one| one.split('=').next() != Some(*name));
        let others = others.collect::<Vec<_>>().join("&");
        others.len() < query.len() && parses(&format!("{before}?{others}"))
    })
}

fn check_list(hosts: &[&str], path: &str) -> Result<()> {
    let count = hosts.len();
    if count > HOSTS_MAX {
        return wrong(format!("the PostgreSQL URL names {count} hosts, at most {HOSTS_MAX}"));
    }
    if path.contains('@') {
        return wrong("the PostgreSQL URL cannot be parsed; write / in a password as %2F".into());
    }
    for (number, host) in (1..).zip(hosts) {
        // An address in brackets contains colons.
        let (host, port) = match host.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port)),
            _ => (*host, None),
        };
        if host.is_empty() {
            return wrong(format!(
                "the PostgreSQL URL has no name for host {number} of {count}; {FORM}"
            ));
        }
        if port.is_some_and(|port| !port.parse().is_ok_and(|port: u16| port > 0)) {
            return wrong(format!(
                "the PostgreSQL URL has an invalid port for host {number} of {count}; use 1 to 65535"
            ));
        }
    }
    Ok(())
}

fn wrong<T>(problem: String) -> Result<T> {
    Err(Error::Config(problem))
}
