//! Controls the provider process, and reads its log.

use std::{
    collections::HashMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result, bail};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use super::show::Show;

/// How the provider fails, in percent of its calls.
#[derive(Clone, Copy)]
pub(crate) struct Moods {
    /// Acts, and hangs up before the answer.
    pub(crate) drops: u32,
    /// Hangs up before it acts.
    pub(crate) misses: u32,
    /// Says that it will not act now.
    pub(crate) refuses: u32,
    /// Acts, and takes its time to answer.
    pub(crate) slow: u32,
}

/// The running provider; it is killed when this is dropped.
pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
}

impl Provider {
    pub(crate) async fn start(show: &Show, moods: Moods) -> Result<Provider> {
        let log = show.site.folder().join("provider.log");
        let mut command = Command::new(std::env::current_exe().context("this program cannot find itself")?);
        command.arg("demo-provider").arg("--log").arg(&log);
        for (option, value) in [
            ("--seed", show.seed),
            ("--drops", moods.drops.into()),
            ("--misses", moods.misses.into()),
            ("--refuses", moods.refuses.into()),
            ("--slow", moods.slow.into()),
        ] {
            command.args([option, &value.to_string()]);
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(show.site.folder().join("provider-errors.log"))?)
            .kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn().context("the provider could not be started")?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the provider cannot be talked to");
        };
        let mut stdout = BufReader::new(stdout).lines();
        let first = stdout.next_line().await?.unwrap_or_default();
        let address = first
            .strip_prefix("listening ")
            .and_then(|address| address.parse().ok())
            .with_context(|| format!("the provider does not listen: {}", errors(show.site.folder())))?;
        Ok(Provider {
            address,
            child,
            stdin,
            stdout,
            log,
        })
    }

    /// The next caller whose action is done dies before it gets the answer.
    pub(crate) async fn aim(&mut self, on: bool) -> Result<()> {
        self.tell(if on { "aim" } else { "rest" }).await
    }

    /// The caller that is to die now. Cancel-safe.
    pub(crate) async fn strike(&mut self) -> Option<u32> {
        let line = self.stdout.next_line().await.ok().flatten()?;
        line.strip_prefix("strike ")?.parse().ok()
    }

    /// Reports to the provider whether the caller was killed.
    pub(crate) async fn go_on(&mut self, dead: bool) -> Result<()> {
        self.tell(if dead { "dead" } else { "spared" }).await
    }

    async fn tell(&mut self, what: &str) -> Result<()> {
        let told = self.stdin.write_all(format!("{what}\n").as_bytes()).await;
        told.context("the provider has gone away")
    }

    /// What really happened, from the log. Nobody calls any more.
    pub(crate) async fn tally(mut self) -> Result<Tally> {
        self.child.kill().await?;
        let text = std::fs::read_to_string(&self.log).context("the provider's log cannot be read")?;
        Tally::read(&text)
    }
}

fn errors(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("provider-errors.log")).unwrap_or_default()
}

/// Actions per order, and calls that ended in another way.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) charges: HashMap<i64, i64>,
    pub(crate) mails: HashMap<i64, i64>,
    /// Calls that found their key known.
    pub(crate) repeats: i64,
    /// Answers lost after the action.
    pub(crate) dropped: i64,
}

impl Tally {
    fn read(text: &str) -> Result<Tally> {
        let mut tally = Tally::default();
        for line in text.lines() {
            let mut words = line.split(' ');
            let (Some(what), Some(order), Some(deed)) = (words.next(), words.next(), words.next()) else {
                bail!("the provider's log has a broken line: {line}");
            };
            let order: i64 = order.parse()?;
            let done = if what == "charge" {
                &mut tally.charges
            } else {
                &mut tally.mails
            };
            match deed {
                "did" => *done.entry(order).or_default() += 1,
                "repeat" => tally.repeats += 1,
                _ => tally.dropped += 1,
            }
        }
        Ok(tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_says_what_happened_how_often() {
        let tally = Tally::read(
            "charge 7 did k\ncharge 7 dropped k\ncharge 7 repeat k\nmail 7 did m\ncharge 8 did l\ncharge 8 did l\n",
        )
        .unwrap();
        assert_eq!(tally.charges, HashMap::from([(7, 1), (8, 2)]));
        assert_eq!(tally.mails, HashMap::from([(7, 1)]));
        assert_eq!((tally.repeats, tally.dropped), (1, 1));
        assert!(Tally::read("charge").is_err());
        assert!(Tally::read("charge x did k").is_err());
    }
}
