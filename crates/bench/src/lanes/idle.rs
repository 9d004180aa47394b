//! S9: what a worker costs that has nothing to do.
//!
//! Statements are counted in the server's log, switched on for the one database; memory is read from /proc.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bench::{Attempt, Bench};
use crate::place::Place;
use crate::programs::{Kind, Program, Role};
use crate::sample::Ended;
use crate::verb::Running;

/// Connecting, registering and the first sweeps are over by then.
const SETTLE: Duration = Duration::from_secs(3);
const START: Duration = Duration::from_secs(20);

/// Ours with 1 and with 50 queues; peers with 1 in a full run, if they can.
pub(super) async fn run(bench: &mut Bench) {
    for (case, queues) in [("idle-1", "1"), ("idle-50", "50")] {
        for program in bench.order(Kind::Postgres, 0) {
            let wanted = match program.role {
                Role::Ours => true,
                Role::Peer => !bench.run.sizes.reduced && queues == "1",
                Role::Ceiling => false,
            };
            if !wanted {
                continue;
            }
            let attempt = Attempt {
                case,
                program: &program,
                round: 0,
                jobs: 0,
                limit_s: 60,
            };
            let Some(place) = bench.fresh(Kind::Postgres, &attempt).await else {
                continue;
            };
            let sample = match measure(bench, &program, &place, queues).await {
                Ok((statements_per_s, resident_mb)) => attempt
                    .sample(Ended::Measured)
                    .with("statements_per_s", statements_per_s)
                    .with("resident_mb", resident_mb),
                Err(error) => {
                    let text = format!("{error:#}");
                    let ended = if text.contains("unsupported") {
                        Ended::Unsupported
                    } else {
                        Ended::Failed
                    };
                    attempt.sample(ended).note(text)
                }
            };
            bench.record(sample);
            place.remove(&bench.server).await;
        }
    }
}

async fn measure(bench: &Bench, program: &Program, place: &Place, queues: &str) -> Result<(f64, f64)> {
    let Place::Postgres { name, url } = place else {
        anyhow::bail!("only on PostgreSQL");
    };
    bench
        .server
        .execute(&format!("alter database {name} set log_statement = 'all'"))
        .await?;
    let seconds = bench.run.sizes.idle_s;
    let runs = (seconds + SETTLE.as_secs() + 5).to_string();
    let mut running = Running::start(program, url, &["idle", "--queues", queues, "--seconds", &runs])?;
    running.wait_for("idle", START).await?;
    tokio::time::sleep(SETTLE).await;
    let from = bench.server.log.metadata().context("the server's log is gone")?.len();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let statements = read_from(&bench.server.log, from).map(|text| count_statements(&text, name))?;
    let resident_mb = resident_kb(running.pid())? / 1024.0;
    Ok((statements as f64 / seconds as f64, resident_mb))
}

/// What was appended to a file since it had this length.
pub(super) fn read_from(file: &Path, from: u64) -> Result<String> {
    let mut file = std::fs::File::open(file).context("could not open the server's log")?;
    file.seek(SeekFrom::Start(from))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The lines that begin a statement of this database; a statement's further lines begin with a tab.
fn count_statements(log: &str, database: &str) -> usize {
    let mark = format!(" db={database} ");
    let is_statement =
        |line: &&str| line.contains(&mark) && (line.contains(" LOG:  statement: ") || line.contains(" LOG:  execute "));
    log.lines().filter(is_statement).count()
}

fn resident_kb(pid: i32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).context("the worker ended")?;
    parse_resident(&text).context("its memory is not in /proc")
}

fn parse_resident(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_of_one_database_are_counted_once_each() {
        let log = "\
2026-11-15 10:00:00 UTC [7] db=bench_3 LOG:  statement: begin
2026-11-15 10:00:00 UTC [7] db=bench_3 LOG:  execute sqlx_s_1: -- Takes due jobs
\tselect 1
2026-11-15 10:00:00 UTC [7] db=bench_3 DETAIL:  parameters: $1 = '1'
2026-11-15 10:00:00 UTC [8] db=bench_33 LOG:  statement: begin
2026-11-15 10:00:00 UTC [9] db= LOG:  checkpoint starting: time
";
        assert_eq!(count_statements(log, "bench_3"), 2);
    }

    #[test]
    fn resident_memory_is_read_in_kilobytes() {
        assert_eq!(parse_resident("Name:\tours\nVmRSS:\t   20480 kB\n"), Some(20480.0));
        assert_eq!(parse_resident("Name:\tours\n"), None);
    }
}
