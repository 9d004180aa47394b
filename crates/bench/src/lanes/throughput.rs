//! S1, S2, S3, S7, S8, S11 and S12: how many jobs a second.

use crate::bench::{Attempt, Bench};
use crate::place::Place;
use crate::programs::{Kind, Program, Role};

/// S1, S7, S12: bulk enqueue and no-op drain in one database, then both at the same time in another.
pub(super) async fn drain(bench: &mut Bench) {
    for round in 0..bench.run.sizes.rounds {
        for program in bench.order(Kind::Postgres, round) {
            enqueue_then_drain(bench, Kind::Postgres, &program, round, ["enqueue", "drain"]).await;
        }
        if !bench.run.wants(&["S1"]) {
            continue;
        }
        for program in bench.order(Kind::Postgres, round) {
            life(bench, Kind::Postgres, &program, round, "life").await;
        }
    }
}

/// S8: the same on SQLite.
pub(super) async fn sqlite(bench: &mut Bench) {
    for round in 0..bench.run.sizes.rounds {
        for program in bench.order(Kind::Sqlite, round) {
            let cases = ["sqlite-enqueue", "sqlite-drain"];
            enqueue_then_drain(bench, Kind::Sqlite, &program, round, cases).await;
        }
        for program in bench.order(Kind::Sqlite, round) {
            life(bench, Kind::Sqlite, &program, round, "sqlite-life").await;
        }
    }
}

async fn enqueue_then_drain(bench: &mut Bench, on: Kind, program: &Program, round: usize, cases: [&str; 2]) {
    let [enqueue, drain] = cases;
    let jobs = if on == Kind::Sqlite {
        bench.run.sizes.sqlite
    } else {
        bench.run.sizes.noop
    };
    let attempt = |case| Attempt {
        case,
        program,
        round,
        jobs,
        limit_s: bench.run.sizes.limit_s,
    };
    let (first, second) = (attempt(enqueue), attempt(drain));
    let drains = on == Kind::Sqlite || bench.run.wants(&["S1", "S7", "S11"]);
    // Without its jobs there is nothing to drain.
    if bench.has_given_up(enqueue, &program.name) || (drains && bench.has_given_up(drain, &program.name)) {
        return;
    }
    let Some(place) = bench.fresh(on, &first).await else {
        return;
    };
    let (count, payload) = (jobs.to_string(), bench.run.sizes.payload.to_string());
    let words = ["enqueue", "--jobs", &count, "--payload", &payload, "--kind", "noop"];
    if bench.timed(&first, &place, &words).await && drains {
        bench
            .timed(&second, &place, &["drain", "--jobs", &count, "--kind", "noop"])
            .await;
    }
    place.remove(&bench.server).await;
}

async fn life(bench: &mut Bench, on: Kind, program: &Program, round: usize, case: &str) {
    if bench.has_given_up(case, &program.name) {
        return;
    }
    let attempt = Attempt {
        case,
        program,
        round,
        jobs: if on == Kind::Sqlite {
            bench.run.sizes.sqlite
        } else {
            bench.run.sizes.life
        },
        limit_s: bench.run.sizes.limit_s,
    };
    let Some(place) = bench.fresh(on, &attempt).await else {
        return;
    };
    let (count, payload) = (attempt.jobs.to_string(), bench.run.sizes.payload.to_string());
    bench
        .timed(&attempt, &place, &["life", "--jobs", &count, "--payload", &payload])
        .await;
    place.remove(&bench.server).await;
}

/// S2 and S3: an update and an insert per job, with a next job, without one, and up to ten jobs per commit.
pub(super) async fn book(bench: &mut Bench) {
    const NEXT: (&str, &[&str]) = ("book-next", &["--next"]);
    const ALONE: (&str, &[&str]) = ("book", &[]);
    const BATCH: (&str, &[&str]) = ("book-batch", &["--batch", "10"]);
    let mut cases = Vec::new();
    if bench.run.wants(&["S2", "S11"]) {
        cases.push(NEXT);
    }
    // What cannot share a commit is compared in S3 by its own best, which is one job per commit.
    cases.push(ALONE);
    if bench.run.wants(&["S3", "S11"]) {
        cases.push(BATCH);
    }
    for round in 0..bench.run.sizes.rounds {
        for (case, words) in &cases {
            for program in bench.order(Kind::Postgres, round) {
                let is_ceiling = program.role == Role::Ceiling;
                // The bare business transaction is the ceiling of all three; it has no queue, so it has no next job.
                if is_ceiling && *case != "book" {
                    continue;
                }
                one_book(bench, &program, round, case, words).await;
            }
        }
    }
}

async fn one_book(bench: &mut Bench, program: &Program, round: usize, case: &str, more: &[&str]) {
    if bench.has_given_up(case, &program.name) {
        return;
    }
    let attempt = Attempt {
        case,
        program,
        round,
        jobs: bench.run.sizes.book,
        limit_s: bench.run.sizes.limit_s,
    };
    let Some(place) = bench.fresh(Kind::Postgres, &attempt).await else {
        return;
    };
    drain_book(bench, &attempt, &place, more).await;
    place.remove(&bench.server).await;
}

async fn drain_book(bench: &mut Bench, attempt: &Attempt<'_>, place: &Place, more: &[&str]) {
    let (count, payload) = (attempt.jobs.to_string(), bench.run.sizes.payload.to_string());
    let enqueue = ["enqueue", "--jobs", &count, "--payload", &payload, "--kind", "book"];
    if attempt.program.role != Role::Ceiling && !bench.prepared(attempt, place, &enqueue).await {
        return;
    }
    let mut words = vec!["drain", "--jobs", &count, "--kind", "book"];
    words.extend(more);
    let whole = bench.timed(attempt, place, &words).await;
    bench.check_book(attempt, place, whole).await;
}

/// S11: the worker as its documentation's first example has it, on the shapes of S1 to S3.
pub(super) async fn defaults(bench: &mut Bench) {
    for round in 0..bench.run.sizes.rounds {
        for program in bench.order(Kind::Postgres, round) {
            match program.role {
                Role::Ours => {
                    let (jobs, limit_s) = (bench.run.sizes.noop, bench.run.sizes.limit_s);
                    drain_defaults(bench, &program, round, jobs, limit_s).await;
                    let next = ["--next", "--mode", "defaults"];
                    one_book(bench, &program, round, "book-next-defaults", &next).await;
                    let batch = ["--batch", "10", "--mode", "defaults"];
                    one_book(bench, &program, round, "book-batch-defaults", &batch).await;
                }
                // Beside ours for comparison; some of them are so slow that one round has to do.
                Role::Peer if round == 0 => {
                    let (jobs, limit_s) = (bench.run.sizes.defaults_peers, bench.run.sizes.defaults_limit_s);
                    drain_defaults(bench, &program, round, jobs, limit_s).await;
                }
                Role::Peer | Role::Ceiling => {}
            }
        }
    }
}

async fn drain_defaults(bench: &mut Bench, program: &Program, round: usize, jobs: usize, limit_s: u64) {
    let attempt = Attempt {
        case: "drain-defaults",
        program,
        round,
        jobs,
        limit_s,
    };
    let Some(place) = bench.fresh(Kind::Postgres, &attempt).await else {
        return;
    };
    let (count, payload) = (jobs.to_string(), bench.run.sizes.payload.to_string());
    let enqueue = ["enqueue", "--jobs", &count, "--payload", &payload, "--kind", "noop"];
    if bench.prepared(&attempt, &place, &enqueue).await {
        let words = ["drain", "--jobs", &count, "--kind", "noop", "--mode", "defaults"];
        bench.timed(&attempt, &place, &words).await;
    }
    place.remove(&bench.server).await;
}
