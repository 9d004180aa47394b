//! One run on one database: set up, disturbed for a while, left to come to rest, and read together.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::{
    business::set_up,
    faults::{file, line, people, process, server, wire},
    fleet::{Fleet, Seat, faketime},
    gather,
    ground::{Bare, Ground, Site},
    history::History,
    jobs::Mishap,
    orders::{Role, RowerOrders, Workload},
    rest,
};
use crate::{
    base::Base,
    till::{Rules, Till},
};

/// Which database a run is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A server of the run's own.
    Postgres,
    /// A file.
    Sqlite,
}

impl Kind {
    /// As the command line names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Postgres => "postgres",
            Kind::Sqlite => "sqlite",
        }
    }
}

/// What a run is to be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// On what.
    pub database: Kind,
    /// How long it is disturbed.
    pub lasts: Duration,
    /// Decides which fault comes when, and which order.
    pub seed: u64,
    /// What is enqueued.
    pub workloads: Vec<Workload>,
    /// Where logs go.
    pub folder: PathBuf,
    /// Where the programs `rower` and `till` are.
    pub programs: PathBuf,
    /// The workers' lease.
    pub lease: Duration,
    /// Handlers that take longer than a lease are many.
    pub slow: bool,
    /// Orders per second and producer.
    pub rate: u32,
    /// Between two faults of a series, on average.
    pub gap: Duration,
    /// The share of commits that meet each kind of cut.
    pub cuts: f64,
    /// Set for every process, such as a mutant.
    pub env: Vec<(String, String)>,
    /// Run on the database before anybody works on it.
    pub spoil: Option<String>,
    /// Which series of faults there are.
    pub lanes: Lanes,
    /// How long the system may take to come to rest once it is left alone.
    pub patience: Duration,
}

/// How long a run goes on when its time is over and a kind of fault has not come yet.
const PATIENCE: Duration = Duration::from_secs(30);

/// Counted for each worker that did something that way.
const THROUGH_A_POOLER: &str = "worker behind a pooler";

/// Which series of faults a run has.
#[derive(Clone, Copy, Debug)]
pub struct Lanes {
    /// Processes.
    pub process: bool,
    /// The server or the file.
    pub database: bool,
    /// The network.
    pub wire: bool,
}

impl Lanes {
    /// All.
    pub const ALL: Lanes = Lanes {
        process: true,
        database: true,
        wire: true,
    };
}

/// Runs it, and reads what happened.
///
/// # Errors
/// Something else than what is under test failed.
pub async fn run(plan: &Plan) -> Result<History> {
    std::fs::create_dir_all(&plan.folder)?;
    clear(&plan.folder)?;
    let bare = match plan.database {
        Kind::Postgres => Bare::postgres(&plan.folder, 12_000, plan.seed).await?,
        Kind::Sqlite => Bare::sqlite(&plan.folder, 4_000)?,
    };
    set_up(&bare.url).await?;
    if let Some(spoil) = &plan.spoil {
        Base::connect(&bare.url).await?.run(spoil).await?;
    }
    let tills = [till(plan, true)?, till(plan, false)?];
    let fleet = Fleet::new(&plan.programs.join("rower"), &plan.folder, seats(plan, &bare, &tills)?);
    let wanted = wanted(plan, &bare);
    let ground = Ground::new(bare, fleet, plan.lease, wanted, &plan.folder)?;
    if faketime().is_none() && plan.database == Kind::Postgres {
        ground.record().missing.push("clock skew (no libfaketime)".into());
    }
    ground.fleet.lock().await.man()?;
    disturb(plan, &ground).await?;
    let rest = rest::come_to_rest(plan, &ground).await?;
    let mut history = History {
        workloads: plan.workloads.clone(),
        lease_ms: plan.lease.as_millis() as i64,
        rest,
        ..History::default()
    };
    gather::database(&mut Base::connect(&ground.url).await?, &mut history).await?;
    keep(plan, &ground).await?;
    history.rowers = ground.fleet.lock().await.logs()?;
    history.faults = ground.faults().await?;
    let [till, blind] = tills;
    (history.till, history.blind_till) = (till.close()?, blind.close()?);
    count_mishaps(&mut history);
    if plan.database == Kind::Postgres && faketime().is_some() {
        let skewed = history.rowers.iter().filter(|rower| rower.skewed).count();
        history.faults.counts.insert("clock skew".into(), skewed);
    }
    let pooled = history.rowers.iter().filter(|rower| rower.pooled);
    let working = pooled.filter(|rower| !rower.done.is_empty()).count();
    history.faults.counts.insert(THROUGH_A_POOLER.into(), working);
    history.faults.counts.retain(|_, times| *times > 0);
    Ok(history)
}

/// Takes away the logs of an earlier run.
fn clear(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Leaves the database beside the logs, so that a failed run can be examined.
async fn keep(plan: &Plan, ground: &Ground) -> Result<()> {
    match &ground.site {
        Site::Postgres { cluster, .. } => cluster.lock().await.dump(&plan.folder.join("database.sql")),
        Site::Sqlite => {
            let copy = format!("vacuum into '{}'", plan.folder.join("database.db").display());
            Base::connect(&ground.url).await?.run(&copy).await
        }
    }
}

/// What handlers did to themselves counts as a fault too.
fn count_mishaps(history: &mut History) {
    let mishaps = [
        "poison",
        Mishap::Panic.as_str(),
        Mishap::Hang.as_str(),
        Mishap::Glut.as_str(),
    ];
    for rower in &history.rowers {
        for mishap in mishaps {
            let times = rower.counts.get(mishap).copied().unwrap_or_default();
            if times > 0 {
                *history.faults.counts.entry(mishap.to_owned()).or_default() += times;
            }
        }
    }
}

fn till(plan: &Plan, honours_keys: bool) -> Result<Till> {
    let program = plan.programs.join("till");
    let rules = Rules {
        log: plan
            .folder
            .join(if honours_keys { "till.log" } else { "blind-till.log" }),
        seed: plan.seed,
        honours_keys,
        drops: 5,
        misses: 3,
        refuses: 3,
    };
    Till::start(&program.to_string_lossy(), &rules)
}

/// What the series of faults deal one by one, and count together.
fn dealt(plan: &Plan) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    if plan.lanes.process {
        kinds.extend(process::KINDS);
    }
    if plan.workloads.contains(&Workload::Dials) {
        kinds.push(line::DOWN);
    }
    if plan.workloads.contains(&Workload::Errands) {
        kinds.push(people::DEED);
    }
    match (plan.lanes.database, plan.database) {
        (true, Kind::Postgres) => kinds.extend(server::KINDS),
        (true, Kind::Sqlite) => kinds.extend(file::KINDS),
        (false, _) => {}
    }
    kinds
}

fn wanted(plan: &Plan, bare: &Bare) -> Vec<String> {
    let mut wanted = dealt(plan);
    let postgres = plan.database == Kind::Postgres;
    if plan.lanes.wire && postgres {
        wanted.extend(wire::kinds());
    }
    if plan.workloads.contains(&Workload::Poison) {
        wanted.extend(["panic", "hang", "poison", "memory limit"]);
    }
    if postgres && faketime().is_some() {
        wanted.push("clock skew");
    }
    wanted.retain(|kind| bare.volume.is_some() || *kind != "disk full");
    match bare.site {
        Site::Postgres { pooler: Some(_), .. } => wanted.push(THROUGH_A_POOLER),
        _ => wanted.retain(|kind| ![server::KILL_POOLER, server::FREEZE_POOLER].contains(kind)),
    }
    wanted.into_iter().map(str::to_owned).collect()
}

/// Who works, and how each reaches the database.
fn seats(plan: &Plan, bare: &Bare, tills: &[Till; 2]) -> Result<Vec<Seat>> {
    let proxied = |no: usize| match &bare.site {
        Site::Postgres { proxies, .. } => proxies[no].url(&bare.url),
        Site::Sqlite => Ok(bare.url.clone()),
    };
    let seat = |url: String, role: Role| Seat {
        orders: RowerOrders {
            url,
            log: PathBuf::new(),
            till: tills[0].address,
            blind_till: tills[1].address,
            role,
        },
        skew: None,
        memory_kb: None,
        env: plan.env.clone(),
    };
    let worker = |name: &str, grace_ms: u64, concurrency: usize, connections: usize| Role::Work {
        lease_ms: plan.lease.as_millis() as u64,
        grace_ms,
        concurrency,
        connections,
        // The dead leave fewer behind, which then run alone; the others show that many can be left.
        prefetch: ["twin", "skewed"].contains(&name).then_some(concurrency),
        name: name.into(),
        limited: false,
        poll_only: false,
    };
    let producer = || Role::Produce {
        no: 0,
        rate: plan.rate,
        backlog: if plan.slow { 150 } else { 2_000 },
        slow: plan.slow,
        workloads: plan.workloads.clone(),
        seed: plan.seed,
    };
    let direct = bare.url.clone();
    let mut limited = worker("limited", 5_000, 4, 4);
    if let Role::Work { limited, poll_only, .. } = &mut limited {
        (*limited, *poll_only) = (true, true);
    }
    let mut seats = vec![
        // The first one lends its orders to those that are killed at a point.
        seat(direct.clone(), worker("direct", 200, 8, 1)),
        seat(proxied(0)?, worker("twin", 3_000, 8, 6)),
        seat(proxied(1)?, worker("twin", 200, 8, 8)),
        Seat {
            memory_kb: Some(2_000_000),
            ..seat(direct.clone(), limited)
        },
    ];
    if plan.database == Kind::Postgres && faketime().is_some() {
        for skew in [3, -26] {
            seats.push(Seat {
                skew: Some(skew),
                ..seat(proxied(1)?, worker("skewed", 2_000, 4, 4))
            });
        }
    }
    if let Some(url) = bare.pooled_url()? {
        for grace_ms in [2_000, 200] {
            seats.push(seat(url.clone(), worker("pooled", grace_ms, 6, 6)));
        }
    }
    seats.push(seat(proxied(0)?, producer()));
    seats.push(seat(direct.clone(), producer()));
    seats.push(seat(direct, producer()));
    Ok(seats)
}

/// The series of faults run side by side until the time is over and every kind has come. The processes are watched
/// meanwhile.
async fn disturb(plan: &Plan, ground: &Ground) -> Result<()> {
    let postgres = plan.database == Kind::Postgres;
    let lanes = plan.lanes;
    // Long enough for somebody else to be in the middle of the job.
    let longest = if plan.slow { 4.0 } else { 2.3 };
    let seed = |no: u64| plan.seed.wrapping_mul(31).wrapping_add(no);
    let dealt = dealt(plan);
    let minding = async {
        let started = Instant::now();
        let enough = |spent: Duration| spent >= plan.lasts && (spent >= plan.lasts + PATIENCE || !ground.lacks(&dealt));
        while !enough(started.elapsed()) {
            ground.fleet.lock().await.mind()?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        ground.halt.now();
        Ok(())
    };
    let processes = async {
        if lanes.process {
            process::lane(ground, seed(1), plan.gap).await?;
        }
        Ok(())
    };
    let freezes = async {
        if lanes.process {
            // On one file every process waits for a frozen one.
            let gap = plan.gap.mul_f64(if postgres { 1.0 } else { 4.0 });
            let one = process::freezes(ground, seed(4), gap, longest);
            let another = async {
                match plan.slow {
                    true => process::freezes(ground, seed(5), plan.gap, longest).await,
                    false => Ok(()),
                }
            };
            tokio::try_join!(one, another)?;
        }
        Ok(())
    };
    let database = async {
        match (lanes.database, postgres) {
            (true, true) => server::lane(ground, seed(2), plan.gap.mul_f64(2.0)).await,
            (true, false) => file::lane(ground, seed(2), plan.gap.mul_f64(2.0)).await,
            (false, _) => Ok(()),
        }
    };
    let line = async {
        if plan.workloads.contains(&Workload::Dials) {
            // Where nothing else depends on it, it is down about every other second.
            let gap = if plan.workloads == [Workload::Dials] { 1.0 } else { 3.0 };
            line::lane(ground, seed(6), plan.gap.mul_f64(gap)).await?;
        }
        Ok(())
    };
    let deeds = async {
        if plan.workloads.contains(&Workload::Errands) {
            people::lane(ground, seed(7), plan.gap).await?;
        }
        Ok(())
    };
    let network = async {
        if lanes.wire && postgres {
            wire::lane(ground, seed(3), plan.gap, plan.cuts, longest).await?;
        }
        Ok(())
    };
    let ended: Result<_> = tokio::try_join!(minding, processes, freezes, database, line, deeds, network);
    ended.map(drop)
}

/// Where cargo puts the programs of this crate: beside this one.
///
/// # Errors
/// This program does not know where it is.
pub fn programs() -> Result<PathBuf> {
    let exe = std::env::current_exe()?;
    exe.parent()
        .map(Path::to_owned)
        .context("this program lies in no folder")
}
