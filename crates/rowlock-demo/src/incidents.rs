//! The third scene: many evaluations of the same entity run at the same time. Each reads the state, works for a while
//! without a lock, and then acts on what it read. Of those that read the same state, one may act; a guard refuses the
//! rest.

mod check;
mod report;
mod watch;

use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

use anyhow::Result;

use self::watch::Evaluate;
pub(crate) use self::watch::work;
use super::{
    crew::Crew,
    ground::Ground,
    own::Tables,
    run::{Act, Run, Size},
    show::{Scene, Show},
};

/// How long an evaluation takes, in milliseconds.
const EVALUATION_MS: std::ops::Range<u64> = 100..600;

#[derive(clap::Args)]
#[command(after_help = super::after_help(
    "entities, evaluations, open_incidents_max, changed, stale, lost, pool, workers, at_once, seconds"
))]
pub(crate) struct Args {
    /// How many entities to watch
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    entities: u32,
    /// How many evaluations of each entity, one job each
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=1000))]
    evaluations: u32,
    /// How many evaluations run at the same time, in two worker processes
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=2000))]
    workers: u32,
    /// How many database connections they share
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=200))]
    pool: u32,
    /// Act without the guard, to see several open incidents (exit code 1)
    #[arg(long)]
    careless: bool,
}

/// The settings of a worker process of this scene.
#[derive(clap::Args)]
pub(crate) struct Role {
    #[arg(long)]
    workers: u32,
    #[arg(long)]
    pool: u32,
    #[arg(long)]
    careless: bool,
    /// The folder for its notes.
    #[arg(long)]
    notes: PathBuf,
}

impl Scene for Args {
    type Ended = report::Ended;
    const NAME: &'static str = "incidents";

    fn intro(&self, show: &Show) -> String {
        let Args {
            entities,
            evaluations,
            workers,
            pool,
            ..
        } = self;
        format!(
            "Evaluating {entities} entities {evaluations} times each on {}, {workers} at a time over {pool} connections",
            show.database()
        )
    }

    fn size(&self) -> (&'static str, i64) {
        ("evaluations", i64::from(self.entities) * i64::from(self.evaluations))
    }

    async fn play<DB: Tables>(&self, show: &Show, crew: &mut Option<Crew>) -> Result<report::Ended> {
        show.step(show.creating());
        let mut ground = Ground::<DB>::open(&show.site, &watch::schema::<DB>()).await?;
        let mut role = vec!["incidents".to_owned()];
        for (option, value) in [("--workers", self.workers), ("--pool", self.pool)] {
            role.extend([option.to_owned(), value.to_string()]);
        }
        role.extend(["--notes".to_owned(), show.site.folder().display().to_string()]);
        role.extend(self.careless.then(|| "--careless".to_owned()));
        let processes = processes(self.workers, self.pool);
        show.step(&format!("starting {processes} worker processes"));
        let crew = crew.insert(Crew::new(show, role)?);
        crew.hire(processes as usize)?;
        let size = Size {
            work: self.size().1,
            steps: 1,
            unit: "evaluations",
            kills: 0,
            bar: 16,
        };
        let act = Incidents {
            entities: self.entities.into(),
            evaluations: self.evaluations.into(),
            workers: self.workers.into(),
            seed: show.seed,
        };
        let ran = Run::new(show, &mut ground, crew, None, (act, size)).finish().await?;
        show.step("counting evaluations and incidents");
        let found = check::check(&mut ground, show.site.folder(), processes).await?;
        Ok(report::Ended {
            found,
            ran,
            entities: self.entities,
            evaluations: self.evaluations,
            workers: self.workers,
            pool: self.pool,
            careless: self.careless,
        })
    }
}

struct Incidents {
    entities: i64,
    evaluations: i64,
    workers: i64,
    seed: u64,
}

impl Incidents {
    /// The entity of this evaluation, counted from 0. Entities take turns within blocks so small that several
    /// evaluations of each are under way at any time, and some begin when others have acted.
    fn entity(&self, number: i64) -> i64 {
        let block = (2 * self.workers / self.evaluations).clamp(1, self.entities);
        let first = number / (block * self.evaluations) * block;
        let here = block.min(self.entities - first);
        first + number % (block * self.evaluations) % here
    }
}

impl<DB: Tables> Act<DB> for Incidents {
    async fn place(&self, ground: &mut Ground<DB>, numbers: RangeInclusive<i64>) -> Result<()> {
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let jobs = numbers.map(|number| Evaluate {
            entity: self.entity(number - 1),
            ms: rng.u64(EVALUATION_MS),
        });
        ground.rowlock.enqueue_all_now(jobs).await?;
        Ok(())
    }

    async fn progress(&self, ground: &mut Ground<DB>, _kills: usize) -> Result<(i64, String)> {
        let sql = "select count(*), cast(coalesce(sum(step), 0) as bigint) from demo_change";
        let (acted, open) = ground.pair(sql).await?;
        let status = ground.observe.status().await?;
        let left: i64 = status
            .lanes
            .iter()
            .map(|lane| lane.due + lane.scheduled + lane.leased)
            .sum();
        let done = self.entities * self.evaluations - left;
        Ok((done, format!("{acted} acted · {open} incidents open")))
    }
}

/// More than one, so that those who race are not always neighbours in one process.
fn processes(workers: u32, pool: u32) -> u32 {
    workers.min(pool).min(2)
}

impl Role {
    /// This process's part of a number that all processes share.
    fn share(&self, whole: u32, number: u32) -> usize {
        let processes = processes(self.workers, self.pool);
        (whole / processes + u32::from(number <= whole % processes)) as usize
    }
}

/// No worker is killed here, so a long lease does no harm.
const LEASE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entity_gets_all_its_evaluations() {
        for (entities, evaluations, workers) in [(60, 20, 100), (7, 20, 100), (3, 2, 100), (25, 30, 4), (1, 2, 2)] {
            let act = Incidents {
                entities,
                evaluations,
                workers,
                seed: 0,
            };
            let mut counts = vec![0; entities as usize];
            for number in 0..entities * evaluations {
                counts[act.entity(number) as usize] += 1;
            }
            assert!(counts.iter().all(|count| *count == evaluations), "{counts:?}");
        }
    }

    #[test]
    fn shares_add_up_to_the_whole() {
        for (workers, pool) in [(1, 1), (100, 1), (100, 5), (7, 3), (1, 9)] {
            let role = Role {
                workers,
                pool,
                careless: false,
                notes: PathBuf::new(),
            };
            let numbers = 1..=processes(workers, pool);
            for whole in [workers, pool] {
                let shares: Vec<usize> = numbers.clone().map(|number| role.share(whole, number)).collect();
                assert_eq!(shares.iter().sum::<usize>(), whole as usize);
                assert!(!shares.contains(&0), "{shares:?}");
            }
        }
    }
}
