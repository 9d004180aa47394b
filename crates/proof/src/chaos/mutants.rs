//! Bugs that others shipped, put into our workers one by one: the checker must notice each.
//!
//! Some sit in the library behind a name; others are one of its statements with a few words changed. Both exist only in
//! binaries that were compiled for the proof.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::{
    check::{Harm, check},
    orders::Workload,
    run::{Kind, Lanes, Plan, run},
};

macro_rules! statement {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../../rowlock/sql/postgres/", $name, ".sql")),
        )
    };
}

/// A statement, what is changed in it, and to what.
type Swap = ((&'static str, &'static str), &'static [(&'static str, &'static str)]);

/// A bug.
pub struct Mutant {
    /// What it does.
    pub name: &'static str,
    /// Who had it.
    pub seen_in: &'static str,
    /// Names by which the library knows what it is to do wrong.
    in_library: &'static [&'static str],
    statements: &'static [Swap],
    /// A function of the schema, and the changes to it.
    function: (&'static str, &'static [(&'static str, &'static str)]),
    lanes: Lanes,
    /// Handlers that take longer than a lease are many.
    slow: bool,
    /// Whether jobs that end their process are among the others.
    poison: bool,
    /// The checks; one of them must notice.
    noticed_by: &'static [&'static str],
}

const PROCESS: Lanes = Lanes {
    process: true,
    database: false,
    wire: false,
};

const PLAIN: Mutant = Mutant {
    name: "",
    seen_in: "",
    in_library: &[],
    statements: &[],
    function: ("settle_done", &[]),
    lanes: PROCESS,
    slow: false,
    poison: true,
    noticed_by: &[],
};

const ONCE: &str = "an effect for every job done, and only once";
const FENCED: &str = "no write under a lease that was over";
const PATH: &str = "every history is a path that there is";
const PLACE: &str = "every job stands where its last outcome led";
const OWNER: &str = "a lease is run by one process";
const CASES: &str = "what always fails becomes a case, after all its attempts";
const REST: &str = "it comes to rest, and nothing is held";
const BESIDE: &str = "no attempt runs beside the next one";
const RECOVERY: &str = "a dead worker's jobs are claimable within its lease and a second";
const STAYS: &str = "a kind that nobody knows stays";
const KEY: &str = "one job per key";
const SHUT: &str = "no claim after a breaker opened";
const PROBES: &str = "no more probes at once than may be";
const ALONE: &str = "never two of a group under way";
const ORDER: &str = "a group runs in the order of its commits";
const CHARGE: &str = "one charge per order at a till that knows keys";

/// Those who had these bugs had no worker that stops itself either; ours would hide them.
const BOLD: &[&str] = &["failed beats ignored", "told to be dead and goes on"];

/// The whole token, as the statements ask for it.
const TOKEN: &str = "l.id = any (array[u.id]) and l.epoch = any (array[u.epoch]) and l.worker = any (array[u.worker])";
const ONE_TOKEN: &str = "l.id = ids[1] and l.epoch = epochs[1] and l.worker = workers[1]";

/// Every bug that can be put in.
pub const MUTANTS: [Mutant; 21] = [
    Mutant {
        name: "recovery overwrites a job finished meanwhile",
        seen_in: "river#1302",
        in_library: BOLD,
        slow: true,
        statements: &[(
            statement!("worker/expire"),
            &[
                (
                    "select l.id, l.epoch, l.worker, l.attempt, l.attempt >=",
                    "select l.*, (select pg_sleep(1.5)), l.attempt >=",
                ),
                ("  for update of l skip locked\n", ""),
                // Another worker's recovery may have been quicker; that is not the bug.
                (
                    "), lost as materialized (",
                    "), back as (
  insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
  select queue_no, kind_no, true, priority, clock_timestamp(), id, epoch, attempt, attempts_max from taken where not retired
  on conflict do nothing
), lost as materialized (",
                ),
            ],
        )],
        noticed_by: &[ONCE, PATH],
        ..PLAIN
    },
    Mutant {
        name: "a failed claim still runs the body",
        seen_in: "dbos-py#742",
        statements: &[(
            statement!("claim/take"),
            &[
                (
                    "taken as (\n  delete from rowlock.ready where ctid = any (array(",
                    "seen as materialized (\n  select id, epoch, attempt, attempts_max, queue_no, kind_no, alone, priority, due_at from rowlock.ready where ctid = any (array(",
                ),
                ("        for update skip locked\n", ""),
                (
                    "  ))\n  returning id, epoch, attempt, attempts_max, queue_no, kind_no, alone, priority, due_at\n), held",
                    "  ))\n), taken as (\n  select * from seen\n), gone as (\n  delete from rowlock.ready r using seen s where r.id = s.id\n), held",
                ),
                (
                    "  from taken t cross join clock c\n)",
                    "  from taken t cross join clock c\n  on conflict do nothing\n)",
                ),
            ],
        )],
        noticed_by: &[OWNER],
        ..PLAIN
    },
    Mutant {
        name: "recovery gives up",
        seen_in: "dbos-py#716",
        in_library: &["recovery gives up"],
        // A new process would recover correctly, so none may start.
        lanes: Lanes {
            process: false,
            database: true,
            wire: false,
        },
        poison: false,
        noticed_by: &[REST],
        ..PLAIN
    },
    Mutant {
        name: "identity by host",
        seen_in: "procrastinate#1518",
        in_library: &["identity by host"],
        statements: &[(
            statement!("worker/register"),
            &[(
                "clock_timestamp()) as now) t",
                "clock_timestamp()) as now) t\non conflict (id) do update set beat = excluded.beat, dead = false",
            )],
        )],
        noticed_by: &[REST, OWNER, PATH, RECOVERY],
        ..PLAIN
    },
    Mutant {
        name: "a worker's row goes before its jobs are found",
        seen_in: "procrastinate#1518",
        statements: &[(
            statement!("worker/mark_dead"),
            &[(
                "update rowlock.worker set dead = true\n  where",
                "delete from rowlock.worker\n  where",
            )],
        )],
        noticed_by: &[REST],
        ..PLAIN
    },
    Mutant {
        name: "finished and failed at once",
        seen_in: "solid_queue#589",
        function: (
            "settle_done",
            &[
                ("  ended record;\n", "  ended record;\n  kept rowlock.lease;\n"),
                (
                    "begin\n",
                    "begin\n  select l.* into kept from rowlock.lease l\n  where l.id = token_id and l.epoch = token_epoch and l.worker = token_worker;\n",
                ),
                (
                    "  return ended.woken;",
                    "  insert into rowlock.lease select kept.*;\n  return ended.woken;",
                ),
            ],
        ),
        noticed_by: &[PATH, PLACE],
        ..PLAIN
    },
    Mutant {
        name: "overdue handler runs on",
        seen_in: "pg-boss#555",
        in_library: &["overdue handler runs on"],
        noticed_by: &[BESIDE],
        ..PLAIN
    },
    Mutant {
        name: "recovery starved under a backlog",
        seen_in: "river#1258",
        statements: &[(
            statement!("worker/expire"),
            &[(
                "from rowlock.lease l join",
                "from (select * from rowlock.lease order by id desc limit 1) x join rowlock.lease l on l.id = x.id join",
            )],
        )],
        noticed_by: &[RECOVERY],
        ..PLAIN
    },
    Mutant {
        name: "an unknown kind is thrown away",
        seen_in: "river#1105",
        statements: &[(
            statement!("worker/beat"),
            &[(
                "update rowlock.worker",
                "with tossed as (\n  delete from rowlock.ready r using rowlock.job j where j.id = r.id and j.kind = 'nobodys'\n)\nupdate rowlock.worker",
            )],
        )],
        noticed_by: &[STAYS],
        ..PLAIN
    },
    Mutant {
        name: "NUL kept in errors",
        seen_in: "osbuild-composer#4779",
        in_library: &["NUL kept in errors"],
        noticed_by: &[CASES, REST],
        ..PLAIN
    },
    Mutant {
        name: "older binary rewrites newer schema",
        seen_in: "awa#392",
        in_library: &["older binary rewrites newer schema"],
        noticed_by: &[REST],
        ..PLAIN
    },
    Mutant {
        name: "a lock of the session is left behind",
        seen_in: "awa#408",
        statements: &[(
            statement!("guard/lock"),
            &[("pg_advisory_xact_lock(no)", "pg_advisory_lock(no)")],
        )],
        noticed_by: &[REST],
        ..PLAIN
    },
    Mutant {
        name: "failed beats ignored",
        seen_in: "stroom#5772",
        in_library: BOLD,
        lanes: Lanes {
            process: false,
            database: false,
            wire: true,
        },
        slow: true,
        noticed_by: &[BESIDE],
        ..PLAIN
    },
    Mutant {
        name: "a key is given away while its job is open",
        seen_in: "keys that end before their jobs",
        statements: &[(
            statement!("key/put"),
            &[(
                "on conflict (key) do nothing",
                "on conflict (key) do update set id = excluded.id",
            )],
        )],
        noticed_by: &[KEY],
        ..PLAIN
    },
    Mutant {
        name: "settled by id alone",
        seen_in: "oban, graphile-worker",
        in_library: BOLD,
        function: (
            "end_leases",
            &[(ONE_TOKEN, "l.id = ids[1]"), (TOKEN, "l.id = any (array[u.id])")],
        ),
        slow: true,
        noticed_by: &[FENCED, ONCE, PATH],
        ..PLAIN
    },
    Mutant {
        name: "committed although nothing was settled",
        seen_in: "job, sqlxmq",
        in_library: BOLD,
        function: (
            "settle_done",
            &[(
                "    raise exception 'the lease of job % is lost', token_id using errcode = 'RL001';",
                "    return null;",
            )],
        ),
        slow: true,
        noticed_by: &[ONCE, FENCED],
        ..PLAIN
    },
    Mutant {
        name: "attempt in the effect key",
        seen_in: "many a tutorial",
        in_library: &["attempt in the effect key"],
        noticed_by: &[CHARGE],
        ..PLAIN
    },
    Mutant {
        name: "a claim goes by what the worker knows of a breaker",
        seen_in: "breakers in memory",
        statements: &[(statement!("claim/take_bound"), &[(" and b.state = 'closed'", "")])],
        noticed_by: &[SHUT],
        ..PLAIN
    },
    Mutant {
        name: "every worker has probes of its own",
        seen_in: "breakers in memory",
        statements: &[(
            statement!("breaker/probe_count"),
            &[(
                "from rowlock.probe where name = $1",
                "from rowlock.probe where name = $1 and id < 0",
            )],
        )],
        noticed_by: &[PROBES],
        ..PLAIN
    },
    Mutant {
        name: "whoever joins a group is its head",
        seen_in: "locks looked at before they are taken",
        statements: &[(
            statement!("enqueue/jobs"),
            &[("    or not coalesce(u.head, true) as waits,", "    as waits,")],
        )],
        noticed_by: &[ALONE],
        ..PLAIN
    },
    Mutant {
        name: "the turn goes to who came last",
        seen_in: "groups in memory",
        function: (
            "pass_turns",
            &[(
                "    select x.id, x.group_no from rowlock.waiting x
    where x.group_no is not null and (x.group_no, x.id) > (g.no, 0)
    order by x.group_no, x.id limit 1
",
                "    select max(x.id) as id, x.group_no from rowlock.waiting x where x.group_no = g.no group by x.group_no
",
            )],
        ),
        noticed_by: &[ORDER],
        ..PLAIN
    },
];

/// One bug in the library and one in a statement, each noticed within seconds: enough to show that the checks still
/// see.
pub const SMOKE: [&str; 2] = ["attempt in the effect key", "an unknown kind is thrown away"];

/// Bugs in what there is not yet.
pub const NOT_YET_BUILT: [&str; 1] = ["a stale leader fires a schedule twice (oban#1488)"];

/// The orders of every process for a bug, and what is done to the database first.
type PutIn = (Vec<(String, String)>, Option<String>);

impl Mutant {
    /// The orders of every process for this bug.
    ///
    /// # Errors
    /// A statement does not read as it did when the bug was written down.
    fn put_in(&self, folder: &Path) -> Result<PutIn> {
        let mut env = Vec::new();
        if !self.in_library.is_empty() {
            env.push(("ROWLOCK_MUTANT".to_owned(), self.in_library.join(";")));
        }
        if !self.statements.is_empty() {
            let folder = folder.join("statements");
            for ((name, text), changes) in self.statements {
                let file = folder.join(format!("{name}.sql"));
                std::fs::create_dir_all(file.parent().unwrap_or(&folder))?;
                std::fs::write(file, changed(text, changes)?)?;
            }
            env.push(("ROWLOCK_MUTANT_SQL".to_owned(), folder.to_string_lossy().into_owned()));
        }
        let spoil = match self.function {
            (_, []) => None,
            (name, changes) => {
                // No database is opened for the text.
                let admin = rowlock::Admin::open("postgres://localhost/any", "rowlock")?;
                let (_, text) = admin
                    .migration_sql()
                    .split_once(&format!("create or replace function rowlock.{name}("))
                    .context("the function")?;
                let (text, _) = text.split_once("$body$;").context("its end")?;
                let text = format!("create or replace function rowlock.{name}({text}$body$;");
                Some(changed(&text, changes)?)
            }
        };
        Ok((env, spoil))
    }
}

fn changed(text: &str, changes: &[(&str, &str)]) -> Result<String> {
    let mut text = text.to_owned();
    for (from, to) in changes {
        ensure!(text.contains(from), "{from:?} is not in the statement any more");
        text = text.replacen(from, to, 1);
    }
    Ok(text)
}

/// What became of a bug.
#[derive(Default)]
pub struct Caught {
    /// The checks that noticed, of those that should; without a bug, of all.
    pub by: Vec<&'static str>,
    /// The first thing that each broken check said.
    pub says: Vec<String>,
}

/// Runs with this bug, or without any, and says who noticed.
///
/// # Errors
/// Something else than what is under test failed.
pub async fn try_out(mutant: Option<&Mutant>, plan: &Plan) -> Result<Caught> {
    std::fs::create_dir_all(&plan.folder)?;
    let (env, spoil) = mutant
        .map(|mutant| mutant.put_in(&plan.folder))
        .transpose()?
        .unwrap_or_default();
    let mut plan = Plan {
        database: Kind::Postgres,
        workloads: Workload::ALL.to_vec(),
        env,
        spoil,
        ..plan.clone()
    };
    if let Some(mutant) = mutant {
        (plan.lanes, plan.slow) = (mutant.lanes, mutant.slow);
        if mutant.slow {
            plan.lasts *= 2;
        }
        let long = [Workload::Transfers, Workload::Guards, Workload::Keys];
        plan.workloads.retain(|workload| match mutant.slow {
            true => long.contains(workload),
            false => mutant.poison || *workload != Workload::Poison,
        });
    }
    let history = run(&plan).await?;
    let mut caught = Caught::default();
    for finding in &check(&history) {
        let mut told = finding.violations.iter().filter(|(harm, _)| *harm != Harm::Weak);
        if let Some((_, what)) = told.next() {
            caught.says.push(format!("{}: {what}", finding.name));
            let expected = mutant.is_none_or(|mutant| mutant.noticed_by.contains(&finding.name));
            caught.by.extend(expected.then_some(finding.name));
        }
    }
    Ok(caught)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_still_fits_its_statement() {
        let folder = tempfile::tempdir().unwrap();
        for mutant in &MUTANTS {
            let put_in = mutant.put_in(folder.path());
            let (env, spoil) = put_in.unwrap_or_else(|error| panic!("{}: {error:#}", mutant.name));
            assert!(!mutant.noticed_by.is_empty(), "nobody notices {}", mutant.name);
            assert!(!env.is_empty() || spoil.is_some(), "{} changes nothing", mutant.name);
        }
        for name in SMOKE {
            assert!(MUTANTS.iter().any(|mutant| mutant.name == name), "{name}");
        }
    }
}
