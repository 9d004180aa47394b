//! `cargo xtask counts`: counts the instructions of the hot path and compares them with those that were accepted.
//!
//! Clocks on shared machines cannot show a loss of a few per cent; the number of instructions can, because it does not
//! depend on who else runs. callgrind counts them in the program of `crates/counts`, all of whose threads are in the
//! figure, and `crates/counts/accepted.txt` holds the figures to compare with. More than [`TOLERANCE_PERCENT`] above
//! one of them fails.

mod figures;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::keeper::Keeper;
use crate::machine::postgres;
use crate::step::Step;
use figures::{Comparison, Cost, Figures};

/// Allows for what is not a regression: another allocator or C library, a compiler of another month. On one machine two
/// runs of one build differ by far less.
const TOLERANCE_PERCENT: u64 = 15;

/// The figures are of this architecture; on another one there is nothing to compare with.
const ARCHITECTURE: &str = "x86_64";

const ACCEPTED: &str = "crates/counts/accepted.txt";

/// What is called before and after each part, as valgrind writes it.
const MARKS: &str = "counts::counted_*";

/// What the caller asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    accept: bool,
}

impl Options {
    /// Reads the arguments after `counts`; the error names the one it does not know.
    pub(crate) fn parse(args: &[&str]) -> Result<Options, String> {
        match args {
            [] => Ok(Options { accept: false }),
            ["--accept"] => Ok(Options { accept: true }),
            [unknown, ..] => Err(format!("counts does not take `{unknown}`")),
        }
    }
}

/// The command itself.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    find_or_install(true)?;
    let mut found = postgres::find_or_install()?;
    found.truncate(1);
    let mut keeper = Keeper::start(&found, postgres::Use::Tests)?;
    let counted = count(&mut keeper)?;
    if options.accept {
        let accepted = accepted()?.with(&counted);
        std::fs::write(accepted_path(), accepted.to_string()).context("could not write the accepted figures")?;
        crate::note(&format!("accepted {} figures in {ACCEPTED}", counted.len()));
        return Ok(ExitCode::SUCCESS);
    }
    compare(&counted).map(|()| ExitCode::SUCCESS)
}

/// The guard, as a step of another run.
pub(crate) fn guard(keeper: &mut Keeper) -> Result<()> {
    compare(&count(keeper)?)
}

/// Makes sure that instructions can be counted here; the error says why not.
pub(crate) fn find_or_install(may_install: bool) -> Result<()> {
    if std::env::consts::ARCH != ARCHITECTURE {
        bail!("no figures for {}", std::env::consts::ARCH);
    }
    if has_valgrind() {
        return Ok(());
    }
    if !may_install {
        bail!("no valgrind");
    }
    if !crate::machine::apt::is_possible() {
        bail!("no valgrind, and only root can install it");
    }
    crate::note("no valgrind found: installing Debian's package valgrind with apt-get");
    crate::machine::apt::install("valgrind").context("could not install valgrind")
}

fn has_valgrind() -> bool {
    let probe = Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    probe.is_ok_and(|status| status.success())
}

/// Builds the program and runs it once without a database, on SQLite, and on the first of the keeper's servers.
fn count(keeper: &mut Keeper) -> Result<Figures> {
    // What else the caller compiles with must not change the figures.
    Step::cargo("build --release --package counts --locked")
        .env("RUSTFLAGS", "")
        .run(keeper)?;
    let program = program()?;
    let mut counted = Figures::default();
    count_in(&program, "job", &[], keeper, &mut counted)?;
    count_in(&program, "sqlite", &[], keeper, &mut counted)?;
    let server = keeper.servers.first().map(|(_, url)| url.clone());
    match server {
        Some(url) => count_in(&program, "postgres", &[&url, "rowlock_counts"], keeper, &mut counted)?,
        None => crate::note("no PostgreSQL server: only SQLite's instructions are counted"),
    }
    Ok(counted)
}

fn count_in(program: &Path, room: &str, args: &[&str], keeper: &mut Keeper, into: &mut Figures) -> Result<()> {
    let parts = Command::new(program).args(["parts", room]).output();
    let parts = parts.with_context(|| format!("could not run {}", program.display()))?;
    let parts = String::from_utf8_lossy(&parts.stdout);
    let out = keeper.dir.join(format!("{room}.callgrind"));
    let mut command = Command::new("valgrind");
    command
        .args(["--quiet", "--tool=callgrind"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(format!("--dump-before={MARKS}"))
        .arg(program)
        .arg(room)
        .args(args);
    Step::of(&format!("valgrind counts {room}"), command).run(keeper)?;
    let dumps = dumps(&out)?;
    let costs: Vec<Cost> = dumps.iter().filter_map(|dump| Cost::read(dump)).collect();
    let names: Vec<&str> = parts.split_whitespace().collect();
    if costs.is_empty() || !costs.len().is_multiple_of(names.len()) {
        bail!(
            "callgrind wrote {} figures for {} parts on {room}; are the program's marks still functions of their own?",
            costs.len(),
            names.len()
        );
    }
    for (name, cost) in names.iter().cycle().zip(costs) {
        into.add_round(&format!("{room} {name}"), cost.ours);
        if cost.engine > 0 {
            into.add_round(&format!("{room} {name} engine"), cost.engine);
        }
    }
    Ok(())
}

/// The texts of `<out>.1`, `<out>.2` and so on, in this order.
fn dumps(out: &Path) -> Result<Vec<String>> {
    let numbered = |n: u32| PathBuf::from(format!("{}.{n}", out.display()));
    let paths = (1..).map(numbered).take_while(|path| path.exists());
    paths
        .map(|path| std::fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display())))
        .collect()
}

fn compare(counted: &Figures) -> Result<()> {
    let comparison = Comparison::of(&accepted()?, counted, TOLERANCE_PERCENT);
    print!("{comparison}");
    let complaints = comparison.complaints();
    if complaints.is_empty() {
        return Ok(());
    }
    bail!(
        "{}; if that is meant, `cargo xtask counts --accept` accepts these figures",
        complaints.join("; ")
    )
}

fn accepted() -> Result<Figures> {
    let path = accepted_path();
    match std::fs::read_to_string(&path) {
        Ok(text) => Figures::parse(&text).with_context(|| format!("could not read {ACCEPTED}")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Figures::default()),
        Err(error) => Err(error).with_context(|| format!("could not read {ACCEPTED}")),
    }
}

fn accepted_path() -> PathBuf {
    crate::step::workspace_root().join(ACCEPTED)
}

/// cargo puts it beside this program, in the folder of its profile.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe().context("could not find this program's own file")?;
    let target = own
        .ancestors()
        .nth(2)
        .context("this program lies in no target folder")?;
    Ok(target.join("release").join("counts"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_accept_may_be_asked_for() {
        assert_eq!(Options::parse(&["--accept"]), Ok(Options { accept: true }));
        assert_eq!(
            Options::parse(&["--fast"]).unwrap_err(),
            "counts does not take `--fast`"
        );
    }

    #[test]
    fn the_accepted_figures_read() {
        let text = include_str!("../../../counts/accepted.txt");
        assert!(Figures::parse(text).unwrap().len() > 0);
    }
}
