//! The processes of a run: who sits where, who is alive, who was ended by whom.

use std::{
    fs::File,
    io::Write,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::{
    gather,
    history::RowerLog,
    log::now_ms,
    orders::{Role, RowerOrders},
};
use crate::{child::Lines, victim::POINT_VAR};

/// How long a process may take to be up.
const UP_LIMIT: Duration = Duration::from_secs(20);

/// How a seat's process is started.
#[derive(Clone, Debug)]
pub struct Seat {
    /// The orders of its process; the log's path is filled in.
    pub orders: RowerOrders,
    /// Its clock is wrong by so many hours.
    pub skew: Option<i64>,
    /// Its address space is limited to so many kilobytes.
    pub memory_kb: Option<u64>,
    /// Set for every process of the run, such as a mutant.
    pub env: Vec<(String, String)>,
}

impl Seat {
    /// The program, with a wrong clock or too little memory where it is to have them.
    fn command(&self, exe: &Path) -> Result<Command> {
        Ok(match (&self.skew, self.memory_kb) {
            (Some(skew), _) => {
                let mut command = Command::new(exe);
                let library = faketime().context("no libfaketime on this machine")?;
                command.env("LD_PRELOAD", library).env("FAKETIME", format!("{skew:+}h"));
                // A clock that is wrong is one thing, time that goes backwards another.
                command
                    .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
                    .env("DONT_FAKE_MONOTONIC", "1");
                command
            }
            (None, Some(kb)) => {
                let mut command = Command::new("/bin/sh");
                command
                    .args(["-c", &format!("ulimit -v {kb}; exec \"$0\" \"$@\"")])
                    .arg(exe);
                command
            }
            (None, None) => Command::new(exe),
        })
    }
}

/// A process.
pub struct Rower {
    /// Its name in the logs.
    pub name: String,
    /// Where it sits; `None` for one that was started to be killed.
    pub seat: Option<usize>,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines,
    log: PathBuf,
    errors: PathBuf,
    skew: i64,
    pooled: bool,
    limited: bool,
    /// Somebody ended it, or sent it the signal to end.
    ended_by_us: bool,
    /// Its end was looked into.
    noted: bool,
    gone: Option<(i64, ExitStatus)>,
    frozen: Vec<(i64, i64)>,
    stands_still: bool,
}

/// All processes of a run, the living and the dead.
pub struct Fleet {
    exe: PathBuf,
    folder: PathBuf,
    seats: Vec<Seat>,
    rowers: Vec<Rower>,
    serial: usize,
    /// Processes that ended although nobody had ended them.
    pub unexplained: Vec<String>,
}

impl Fleet {
    /// Nobody yet. `exe` is the rower's program, `folder` takes the logs.
    pub fn new(exe: &Path, folder: &Path, seats: Vec<Seat>) -> Fleet {
        Fleet {
            exe: exe.to_owned(),
            folder: folder.to_owned(),
            seats,
            rowers: Vec::new(),
            serial: 0,
            unexplained: Vec::new(),
        }
    }

    /// Fills every seat.
    ///
    /// # Errors
    /// A process could not be started.
    pub fn man(&mut self) -> Result<()> {
        for seat in 0..self.seats.len() {
            self.sit(seat)?;
        }
        Ok(())
    }

    fn sit(&mut self, seat: usize) -> Result<()> {
        let plan = self.seats[seat].clone();
        self.start(plan, Some(seat), None)?;
        Ok(())
    }

    /// Starts a process that stops at a fail point. Returns its place among all.
    ///
    /// # Errors
    /// It could not be started.
    pub fn start_at(&mut self, seat: usize, point: &str) -> Result<usize> {
        let plan = self.seats[seat].clone();
        self.start(plan, None, Some(point))
    }

    fn start(&mut self, mut plan: Seat, seat: Option<usize>, point: Option<&str>) -> Result<usize> {
        self.serial += 1;
        let name = format!("rower-{:04}", self.serial);
        if let Role::Produce { no, seed, .. } = &mut plan.orders.role {
            // Never the same order again.
            *no = self.serial as i64;
            *seed = seed.wrapping_add(self.serial as u64);
        }
        let (log, errors) = (
            self.folder.join(format!("{name}.log")),
            self.folder.join(format!("{name}.err")),
        );
        plan.orders.log.clone_from(&log);
        let orders = serde_json::to_string(&plan.orders)?;
        let mut command = plan.command(&self.exe)?;
        // Reading symbols for a panic that is meant takes a second of a processor.
        command.env("RUST_BACKTRACE", "0");
        command.arg(orders).env_remove(POINT_VAR).envs(plan.env.iter().cloned());
        if let Some(point) = point {
            command.env(POINT_VAR, point);
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors)?);
        let mut child = command
            .spawn()
            .with_context(|| format!("could not start {}", self.exe.display()))?;
        let lines = Lines::of(child.stdout.take().context("a rower has a stdout")?);
        self.rowers.push(Rower {
            name,
            seat,
            stdin: child.stdin.take(),
            child,
            lines,
            log,
            errors,
            skew: plan.skew.unwrap_or_default(),
            pooled: plan.orders.url.ends_with("pgbouncer=true"),
            limited: plan.memory_kb.is_some(),
            ended_by_us: false,
            noted: false,
            gone: None,
            frozen: Vec::new(),
            stands_still: false,
        });
        Ok(self.rowers.len() - 1)
    }

    /// A living worker that got no signal to end, drawn by lot.
    pub fn any_worker(&mut self, random: &mut fastrand::Rng) -> Option<usize> {
        self.draw(random, |seat| matches!(seat.orders.role, Role::Work { .. }))
    }

    /// A living worker whose time to stop is like this.
    pub fn any_with_grace(&mut self, random: &mut fastrand::Rng, fits: impl Fn(Duration) -> bool) -> Option<usize> {
        self.draw(random, |seat| match seat.orders.role {
            Role::Work { grace_ms, .. } => fits(Duration::from_millis(grace_ms)),
            Role::Produce { .. } | Role::Migrate => false,
        })
    }

    /// A living producer.
    pub fn any_producer(&mut self, random: &mut fastrand::Rng) -> Option<usize> {
        self.draw(random, |seat| matches!(seat.orders.role, Role::Produce { .. }))
    }

    fn draw(&mut self, random: &mut fastrand::Rng, fits: impl Fn(&Seat) -> bool) -> Option<usize> {
        let living = self.living(fits);
        (!living.is_empty()).then(|| living[random.usize(..living.len())])
    }

    /// Who lives in a seat like this.
    pub fn living(&mut self, fits: impl Fn(&Seat) -> bool) -> Vec<usize> {
        let seats = &self.seats;
        let rowers = self.rowers.iter_mut().enumerate();
        let fitting = rowers.filter_map(|(at, rower)| {
            let alive = rower.is_up() && !rower.ended_by_us && !rower.stands_still && !rower.look();
            (alive && fits(&seats[rower.seat?])).then_some(at)
        });
        fitting.collect()
    }

    /// How long a worker may take to stop, and the database it works on.
    pub fn manners(&self, at: usize) -> (Duration, String) {
        let seat = self.rowers[at].seat.map(|seat| &self.seats[seat]);
        let grace = seat.map_or(0, |seat| match seat.orders.role {
            Role::Work { grace_ms, .. } => grace_ms,
            Role::Produce { .. } | Role::Migrate => 0,
        });
        let url = seat.map_or(String::new(), |seat| seat.orders.url.clone());
        (Duration::from_millis(grace), url)
    }

    /// One of them.
    pub fn rower(&mut self, at: usize) -> &mut Rower {
        &mut self.rowers[at]
    }

    /// Notes who has ended, whether that can be explained, and fills the seats again.
    ///
    /// # Errors
    /// A process could not be started.
    pub fn mind(&mut self) -> Result<()> {
        let mut empty = Vec::new();
        for rower in &mut self.rowers {
            if rower.noted || !rower.look() {
                continue;
            }
            rower.noted = true;
            if let Some(problem) = rower.unexplained() {
                self.unexplained.push(problem);
            }
            empty.extend(rower.seat);
        }
        empty.into_iter().try_for_each(|seat| self.sit(seat))
    }

    /// Which worker of this name lives, if there are others beside it.
    pub fn named(&mut self, name: &str) -> Option<usize> {
        let all = self.living(|seat| matches!(seat.orders.role, Role::Work { .. }));
        let same = |seat: &Seat| matches!(&seat.orders.role, Role::Work { name: of, .. } if of == name);
        self.living(same).first().copied().filter(|_| all.len() > 1)
    }

    /// Kills one for good: nobody takes its seat. Its name in the logs, and when.
    ///
    /// # Errors
    /// The system refused.
    pub fn vacate(&mut self, at: usize) -> Result<(String, i64)> {
        let rower = &mut self.rowers[at];
        rower.noted = true;
        Ok((rower.name.clone(), rower.kill()?))
    }

    /// Waits until nobody is left of those whom this picks, after telling them to stop.
    ///
    /// # Errors
    /// One did not end.
    pub async fn stop(&mut self, fits: impl Fn(&Seat) -> bool) -> Result<()> {
        let leaving = self.living(fits);
        for at in &leaving {
            self.rowers[*at].terminate()?;
        }
        let started = Instant::now();
        while !leaving.iter().all(|at| self.rowers[*at].look()) {
            if started.elapsed() > Duration::from_secs(60) {
                bail!("a process told to stop did not end");
            }
            // A process that dies meanwhile counts as gone from now on, not from the next look.
            for rower in &mut self.rowers {
                rower.look();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Nobody takes their seats; somebody takes those of others who have died meanwhile.
        for at in leaving {
            self.rowers[at].noted = true;
            self.unexplained.extend(self.rowers[at].unexplained());
        }
        Ok(())
    }

    /// What all of them wrote down.
    ///
    /// # Errors
    /// A log does not read.
    pub fn logs(&self) -> Result<Vec<RowerLog>> {
        let read = |rower: &Rower| {
            let mut log = gather::rower(&rower.name, &rower.log)?;
            log.skewed = rower.skew != 0;
            log.pooled = rower.pooled;
            log.set_clock_back(rower.skew * 3_600_000);
            log.gone_ms = rower.gone.map(|(at, _)| at);
            log.frozen.clone_from(&rower.frozen);
            Ok(log)
        };
        self.rowers.iter().map(read).collect()
    }
}

impl Rower {
    /// Whether it has said that it is up.
    pub fn is_up(&self) -> bool {
        self.says("up")
    }

    /// Whether it has printed this line.
    pub fn says(&self, line: &str) -> bool {
        self.lines.have(line)
    }

    /// Whether it is gone, and since when.
    fn look(&mut self) -> bool {
        if self.gone.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            // Nobody may have looked for a while; its output ended when it did.
            self.gone = Some((self.lines.over_ms().unwrap_or_else(now_ms), status));
            return true;
        }
        self.gone.is_some()
    }

    /// Whether it is gone.
    pub fn is_gone(&mut self) -> bool {
        self.look()
    }

    /// SIGKILL. Returns when it happened.
    ///
    /// # Errors
    /// The system refused.
    pub fn kill(&mut self) -> Result<i64> {
        self.ended_by_us = true;
        self.child.kill()?;
        let at = now_ms();
        let status = self.child.wait()?;
        self.gone = Some((at, status));
        Ok(at)
    }

    /// SIGTERM.
    ///
    /// # Errors
    /// The system refused.
    pub fn terminate(&mut self) -> Result<()> {
        self.ended_by_us = true;
        self.signal(Signal::TERM)
    }

    /// SIGSTOP; returns when.
    ///
    /// # Errors
    /// The system refused.
    pub fn freeze(&mut self) -> Result<i64> {
        self.signal(Signal::STOP)?;
        self.stands_still = true;
        Ok(now_ms())
    }

    /// SIGCONT, after it has stood still since then. A while is added in which it may find out.
    ///
    /// # Errors
    /// The system refused.
    pub fn thaw(&mut self, since: i64) -> Result<()> {
        self.frozen.push((since, now_ms() + 1_000));
        self.stands_still = false;
        self.signal(Signal::CONT)
    }

    /// Lets it go on from the point where it waits.
    ///
    /// # Errors
    /// It has ended.
    pub fn go_on(&mut self) -> Result<()> {
        let stdin = self.stdin.as_mut().context("a rower's stdin is closed")?;
        stdin.write_all(b"\n")?;
        Ok(stdin.flush()?)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.child), signal).with_context(|| format!("could not send {signal:?}"))
    }

    /// Why it should not have ended; `None` when there is a reason.
    fn unexplained(&self) -> Option<String> {
        let (_, status) = self.gone?;
        let told = |word: &str, path: &Path| std::fs::read_to_string(path).unwrap_or_default().contains(word);
        let aborted = status.signal() == Some(Signal::ABORT.as_raw());
        let explained = self.ended_by_us && (status.success() || status.signal() == Some(Signal::KILL.as_raw()))
            || aborted && told(" poison", &self.log)
            || self.limited && (told(" memory limit", &self.log) || told("memory allocation of", &self.errors));
        let tail = |path: &Path| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().rev().take(3).collect();
            lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
        };
        (!explained).then(|| format!("{} ended with {status}: {}", self.name, tail(&self.errors)))
    }
}

impl Drop for Rower {
    fn drop(&mut self) {
        if !self.look() {
            // Nothing to do about a failure: its stdin closes next, and it ends by that.
            let _ = self.kill();
        }
    }
}

/// Waits until a process is up, or gone.
///
/// # Errors
/// Neither happens.
pub async fn up(fleet: &tokio::sync::Mutex<Fleet>, at: usize) -> Result<()> {
    let started = Instant::now();
    loop {
        {
            let mut fleet = fleet.lock().await;
            let rower = fleet.rower(at);
            if rower.is_up() || rower.is_gone() {
                return Ok(());
            }
        }
        if started.elapsed() > UP_LIMIT {
            bail!("a rower does not come up");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The library that makes a process's clock wrong, if it is installed.
pub fn faketime() -> Option<PathBuf> {
    let machines = std::fs::read_dir("/usr/lib").ok()?.flatten();
    let mut places = machines.map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
    places.find(|path| path.exists())
}

/// A flag that each series checks between two faults.
#[derive(Clone, Default)]
pub struct Halt(Arc<AtomicBool>);

impl Halt {
    /// From now on.
    pub fn now(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it is time.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
