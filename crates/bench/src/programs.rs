//! The programs measured: ours, the ceilings and the peers; how each is built and started.
//!
//! Ours and the ceilings lie beside this program. A peer is built from its folder in bench/peers; one that cannot be
//! built or started is left out by name and reason, and the run goes on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::process::Command;

use crate::verb::{Said, run};

const PEERS_DIR: &str = "bench/peers";
/// One folder for all of them, so that what they share is compiled once.
const PEERS_TARGET: &str = "target/peers";
const ABOUT_LIMIT_S: u64 = 20;

/// Which database a program is measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Postgres,
    Sqlite,
}

/// What a program is in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Ours,
    Ceiling,
    Peer,
}

/// Where a peer comes from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// A cargo project in this folder of bench/peers.
    Cargo(&'static str),
    /// A script in bench/peers/node.
    Node(&'static str),
}

struct Peer {
    name: &'static str,
    source: Source,
    on: Kind,
}

const fn peer(name: &'static str, source: Source, on: Kind) -> Peer {
    Peer { name, source, on }
}

/// Every peer there is.
const PEERS: [Peer; 10] = [
    peer("river", Source::Cargo("river"), Kind::Postgres),
    peer("awa", Source::Cargo("awa"), Kind::Postgres),
    peer("graphile", Source::Cargo("graphile"), Kind::Postgres),
    peer("apalis", Source::Cargo("apalis"), Kind::Postgres),
    peer("sqlxmq", Source::Cargo("sqlxmq"), Kind::Postgres),
    peer("node-graphile", Source::Node("graphile.mjs"), Kind::Postgres),
    peer("pgboss", Source::Node("pgboss.mjs"), Kind::Postgres),
    peer("river-sqlite", Source::Cargo("river"), Kind::Sqlite),
    peer("apalis-sqlite", Source::Cargo("apalis-sqlite"), Kind::Sqlite),
    peer("taskito", Source::Cargo("taskito"), Kind::Sqlite),
];

/// A program that starts.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) on: Vec<Kind>,
    /// What it says of itself.
    pub(crate) about: Value,
    file: PathBuf,
    first_words: Vec<String>,
}

impl Program {
    fn new(name: &str, role: Role, on: &[Kind], file: PathBuf, first_words: Vec<String>) -> Program {
        Program {
            name: name.to_owned(),
            role,
            on: on.to_vec(),
            about: Value::Null,
            file,
            first_words,
        }
    }

    #[cfg(test)]
    pub(crate) fn for_test(file: &str, words: &[&str]) -> Program {
        let words = words.iter().map(|&word| word.to_owned()).collect();
        Program::new("test", Role::Peer, &[Kind::Postgres], file.into(), words)
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command.args(&self.first_words);
        command
    }

    /// The same program for a separate process.
    pub(crate) fn again(&self) -> Program {
        Program {
            name: self.name.clone(),
            role: self.role,
            on: self.on.clone(),
            about: Value::Null,
            file: self.file.clone(),
            first_words: self.first_words.clone(),
        }
    }

    /// Its name and version for people.
    pub(crate) fn full_name(&self) -> String {
        match (self.about["name"].as_str(), self.about["version"].as_str()) {
            (Some(name), Some(version)) => format!("{name} {version}"),
            _ => self.name.clone(),
        }
    }

    /// Whether a finished job can still be found.
    pub(crate) fn keeps_history(&self) -> Option<bool> {
        self.about["keeps_history"].as_bool()
    }

    /// How it is configured for a verb, in its own words.
    pub(crate) fn settings(&self, verb: &str) -> Option<&str> {
        self.about["settings"][verb].as_str()
    }
}

/// The programs of a run, and the peers left out with the reason.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    pub(crate) all: Vec<Arc<Program>>,
    pub(crate) left_out: BTreeMap<String, String>,
}

impl Programs {
    pub(crate) fn on(&self, kind: Kind) -> Vec<Arc<Program>> {
        self.all
            .iter()
            .filter(|program| program.on.contains(&kind))
            .cloned()
            .collect()
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Program>> {
        self.all.iter().find(|program| program.name == name)
    }

    /// The programs of a run that is over, as its summary names them; they cannot be started.
    pub(crate) fn recalled(summary: &Value) -> Programs {
        let mut programs = Programs::default();
        for (name, about) in summary["programs"].as_object().into_iter().flatten() {
            let role = match name.as_str() {
                "ours" => Role::Ours,
                "ceiling" => Role::Ceiling,
                _ => Role::Peer,
            };
            let mut program = Program::new(name, role, &[], PathBuf::new(), Vec::new());
            program.about = about.clone();
            programs.all.push(Arc::new(program));
        }
        for (name, reason) in summary["left_out"].as_object().into_iter().flatten() {
            let reason = reason.as_str().unwrap_or_default();
            programs.left_out.insert(name.clone(), reason.to_owned());
        }
        programs
    }

    /// Whether a name is a peer's.
    pub(crate) fn is_peer(&self, name: &str) -> bool {
        self.find(name).is_some_and(|program| program.role == Role::Peer)
    }
}

/// Builds what is wanted; `wanted` empty means every peer, `none` means no peer.
pub(crate) async fn prepare(wanted: &[String], kinds: &[Kind]) -> Result<Programs> {
    if let Some(unknown) = wanted
        .iter()
        .find(|&name| name != "none" && PEERS.iter().all(|peer| peer.name != name))
    {
        let names: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
        bail!("no peer `{unknown}`; the peers are {}", names.join(", "));
    }
    let own = std::env::current_exe().context("could not find this program's own file")?;
    let both = [Kind::Postgres, Kind::Sqlite];
    let mut programs = Programs::default();
    for (name, role) in [("ours", Role::Ours), ("ceiling", Role::Ceiling)] {
        let program = Program::new(name, role, &both, own.with_file_name(name), Vec::new());
        programs.start(program).await;
    }
    for peer in PEERS.iter().filter(|peer| kinds.contains(&peer.on)) {
        if wanted.is_empty() || wanted.iter().any(|name| name == peer.name) {
            programs.add_peer(peer).await;
        }
    }
    Ok(programs)
}

/// Ours as it is now, the same once more, and ours of an older commit: the first two show how far equal programs
/// differ.
pub(crate) async fn against(older: &Path) -> Result<Programs> {
    let own = std::env::current_exe().context("could not find this program's own file")?;
    let now = own.with_file_name("ours");
    let mut programs = Programs::default();
    for (name, role, file) in [
        ("ours", Role::Ours, now.clone()),
        ("before", Role::Peer, older.to_path_buf()),
        ("again", Role::Peer, now),
    ] {
        let program = Program::new(name, role, &[Kind::Postgres, Kind::Sqlite], file, Vec::new());
        programs.start(program).await;
    }
    match programs.left_out.first_key_value() {
        Some((name, reason)) => bail!("`{name}` does not start: {reason}"),
        None => Ok(programs),
    }
}

impl Programs {
    async fn add_peer(&mut self, peer: &Peer) {
        eprintln!("building {}", peer.name);
        let built = match peer.source {
            Source::Cargo(folder) => cargo(folder).await.map(|file| (file, Vec::new())),
            Source::Node(script) => node(script).await.map(|path| ("node".into(), vec![path])),
        };
        match built {
            Ok((file, words)) => {
                self.start(Program::new(peer.name, Role::Peer, &[peer.on], file, words))
                    .await
            }
            Err(error) => self.leave_out(peer.name, format!("{error:#}")),
        }
    }

    /// Asks the program about itself, which shows that it starts.
    async fn start(&mut self, mut program: Program) {
        let reason = match run(&program, "", &["about"], ABOUT_LIMIT_S).await {
            Said::Done(mut lines) => {
                program.about = lines.pop().unwrap_or_default();
                self.all.push(Arc::new(program));
                return;
            }
            // The ceilings have no name and no settings worth asking for.
            Said::Unsupported(_) if program.role == Role::Ceiling => {
                self.all.push(Arc::new(program));
                return;
            }
            Said::Stalled { .. } => "`about` did not end".to_owned(),
            Said::Unsupported(why) | Said::Failed(why) => format!("`about`: {why}"),
        };
        self.leave_out(&program.name, reason);
    }

    fn leave_out(&mut self, name: &str, reason: String) {
        eprintln!("going on without {name}: {reason}");
        self.left_out.insert(name.to_owned(), reason);
    }
}

async fn cargo(folder: &str) -> Result<PathBuf> {
    let dir = Path::new(PEERS_DIR).join(folder);
    if !dir.join("Cargo.toml").exists() {
        bail!("there is no {}/{folder}", PEERS_DIR);
    }
    let target = std::env::current_dir().context("no current folder")?.join(PEERS_TARGET);
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args([
            "build",
            "--release",
            "--locked",
            "--message-format",
            "json-render-diagnostics",
        ])
        .current_dir(&dir)
        .env("CARGO_TARGET_DIR", target)
        .env_remove("RUSTFLAGS");
    let output = output(command).await.context("cargo build")?;
    executable(&output).context("cargo built no program")
}

/// The last program among cargo's messages.
fn executable(messages: &str) -> Option<PathBuf> {
    let values = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    values
        .filter_map(|value| value["executable"].as_str().map(PathBuf::from))
        .next_back()
}

async fn node(script: &str) -> Result<String> {
    let dir = Path::new(PEERS_DIR).join("node");
    if !dir.join(script).exists() {
        bail!("there is no {PEERS_DIR}/node/{script}");
    }
    // Written by npm itself when an install is whole; the lock file being older means nothing is to be done.
    let marker = dir.join("node_modules/.package-lock.json");
    let time = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    if time(&marker).is_none() || time(&marker) < time(&dir.join("package-lock.json")) {
        let mut command = Command::new("npm");
        command.args(["ci", "--no-audit", "--no-fund"]).current_dir(&dir);
        output(command).await.context("npm ci")?;
    }
    Ok(dir.join(script).to_string_lossy().into_owned())
}

async fn output(mut command: Command) -> Result<String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    let output = command
        .kill_on_drop(true)
        .output()
        .await
        .context("could not start it")?;
    if !output.status.success() {
        bail!("it ended with {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_among_cargos_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","executable":"/t/release/bench-peer-river"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        assert_eq!(executable(messages), Some("/t/release/bench-peer-river".into()));
        assert_eq!(executable("{}"), None);
    }

    #[tokio::test]
    async fn a_program_that_does_not_start_is_left_out_by_name() {
        let mut programs = Programs::default();
        let program = Program::new(
            "gone",
            Role::Peer,
            &[Kind::Postgres],
            "/nowhere/gone".into(),
            Vec::new(),
        );
        programs.start(program).await;
        assert!(programs.all.is_empty());
        assert!(programs.left_out["gone"].contains("could not start gone"));
    }
}
