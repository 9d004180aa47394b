//! What the caller asked for.

use std::path::PathBuf;

use clap::Parser;

/// The benchmark; called by `cargo xtask bench`, which starts its server.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench")]
pub(crate) struct Args {
    /// Only these benchmarks, such as `S1,S5,growth`
    #[arg(long, value_delimiter = ',', value_parser = lane)]
    pub(crate) lane: Vec<String>,
    /// Every benchmark in reduced size
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only these peers, or `none`
    #[arg(long, value_delimiter = ',')]
    pub(crate) peers: Vec<String>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// How often each figure is taken
    #[arg(long)]
    pub(crate) rounds: Option<usize>,
    /// Where samples, tables and pictures go; bench/runs/DATE unless given
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// Measure nothing: write the tables and pictures of this run's folder again
    #[arg(long)]
    pub(crate) redraw: Option<PathBuf>,
    /// The program `ours` of an older commit, built by xtask: compare with it by processor time
    #[arg(long, hide = true, conflicts_with = "redraw")]
    pub(crate) against: Option<PathBuf>,
    /// The server, given by xtask
    #[arg(long, env = "ROWLOCK_BENCH_URL", hide = true)]
    pub(crate) url: Option<String>,
    /// The server's log, in which statements are counted
    #[arg(long, env = "ROWLOCK_BENCH_LOG", hide = true)]
    pub(crate) log: Option<PathBuf>,
    /// A folder that goes with the run
    #[arg(long, env = "ROWLOCK_BENCH_DIR", hide = true)]
    pub(crate) dir: Option<PathBuf>,
}

fn lane(text: &str) -> Result<String, String> {
    let known = crate::verdict::LANES
        .iter()
        .find(|known| known.name.eq_ignore_ascii_case(text));
    known
        .map(|known| known.name.to_owned())
        .ok_or_else(|| format!("no lane `{text}`; the lanes are S1 to S13, C1, G1, Q1 and growth"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_known_by_its_name_in_either_case() {
        assert_eq!(lane("s5"), Ok("S5".to_owned()));
        assert_eq!(lane("growth"), Ok("growth".to_owned()));
        assert!(lane("S14").is_err());
    }
}
