//! `cargo xtask bench`: one throw-away server with benchmark settings, then the `bench` program against it.
//!
//! Everything is built in release and without the fail points: what is measured is what users get. The newest
//! PostgreSQL found is taken. Arguments are read by the `bench` program, which alone knows the benchmarks. `--against
//! COMMIT` is read here: that commit's program is built below `target/against` from its own source, and measured beside
//! today's.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::keeper::Keeper;
use crate::machine::postgres;
use crate::step::{Step, workspace_root};
use crate::test::HOW_TO_GET_POSTGRES;
use crate::workspace::output;

const RUN: &str = "run --release --locked --quiet --package bench --bin bench --";

/// Runs the benchmark with the arguments after `bench`.
pub(crate) fn run(args: &[&str]) -> Result<ExitCode> {
    if args.contains(&"--redraw") {
        // Nothing is measured, so nothing is started.
        let mut keeper = Keeper::start(&[], postgres::Use::Bench)?;
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        let code = Step::cargo(RUN).args(&args).run_for_code(&mut keeper)?;
        return Ok(ExitCode::from(code));
    }
    let (against, args) = split(args)?;
    let mut found = postgres::find_or_install()?;
    let Some(server) = found.pop() else {
        bail!("no PostgreSQL server found; {HOW_TO_GET_POSTGRES}");
    };
    let mut keeper = Keeper::start(&[server], postgres::Use::Bench)?;
    let (label, url) = keeper.servers.first().context("the keeper started no server")?.clone();
    crate::note(&format!("{label} runs at {url}"));
    Step::cargo("build --release --locked --package bench --bins").run(&mut keeper)?;
    let told = [
        ("ROWLOCK_BENCH_URL", url),
        (
            "ROWLOCK_BENCH_LOG",
            keeper.dir.join(&label).join(postgres::LOG).display().to_string(),
        ),
        ("ROWLOCK_BENCH_DIR", keeper.dir.display().to_string()),
    ];
    let mut step = Step::cargo(RUN);
    for (name, value) in &told {
        step = step.env(name, value);
    }
    let mut args = args;
    if let Some(commit) = against {
        let older = build(&commit, &mut keeper).with_context(|| format!("could not build {commit}"))?;
        args.extend(["--against".to_owned(), older.display().to_string()]);
    }
    let code = step.args(&args).run_for_code(&mut keeper)?;
    Ok(ExitCode::from(code))
}

/// The commit to compare with, and the other arguments.
fn split(args: &[&str]) -> Result<(Option<String>, Vec<String>)> {
    let mut args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
    let Some(at) = args.iter().position(|arg| arg == "--against") else {
        return Ok((None, args));
    };
    if at + 1 == args.len() {
        bail!("--against needs a commit, as in `bench --against HEAD~1 --lane S1,S2`");
    }
    let commit = args.remove(at + 1);
    args.remove(at);
    Ok((Some(commit), args))
}

/// Builds the program of an older commit from its own source, with its own lock file.
fn build(commit: &str, keeper: &mut Keeper) -> Result<PathBuf> {
    let id = output(Command::new("git").args(["rev-parse", "--verify", &format!("{commit}^{{commit}}")]))?;
    let dir = workspace_root().join("target/against");
    let source = dir.join(id.trim());
    if !source.join("Cargo.toml").exists() {
        std::fs::create_dir_all(&source).with_context(|| format!("could not make {}", source.display()))?;
        let tar = dir.join(format!("{}.tar", id.trim()));
        let file = format!("--output={}", tar.display());
        output(Command::new("git").args(["archive", "--format=tar", &file, id.trim()]))?;
        output(Command::new("tar").arg("-xf").arg(&tar).arg("-C").arg(&source))?;
        std::fs::remove_file(&tar).with_context(|| format!("could not remove {}", tar.display()))?;
    }
    let target = dir.join("target");
    let places = [
        "--manifest-path".to_owned(),
        source.join("Cargo.toml").display().to_string(),
        "--target-dir".to_owned(),
        target.display().to_string(),
    ];
    Step::cargo("build --release --locked --package bench --bin ours")
        .args(&places)
        .run(keeper)?;
    // The next commit that is built here has a program of the same name.
    let kept = dir.join(format!("ours-{}", id.trim()));
    std::fs::copy(target.join("release/ours"), &kept).context("could not keep the program")?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commit_is_taken_out_and_everything_else_passed_on() {
        let (against, args) = split(&["--lane", "S1", "--against", "HEAD~1", "--json"]).unwrap();
        assert_eq!(against.as_deref(), Some("HEAD~1"));
        assert_eq!(args, ["--lane", "S1", "--json"]);
        assert_eq!(split(&["--quick"]).unwrap(), (None, vec!["--quick".to_owned()]));
        assert!(
            split(&["--against"])
                .unwrap_err()
                .to_string()
                .contains("needs a commit")
        );
    }
}
