//! Liveness: it came to rest, nothing is held, the dead are noticed in time, and nobody ended who was not ended.

use std::collections::{HashMap, HashSet};

use rowlock::Ended;

use super::{Finding, Harm, Look, people::by_hand};
use crate::chaos::{
    history::{RowerLog, Run},
    orders::Workload,
};

/// A dead worker's jobs are claimable after the lease and this.
const RECOVERY_SLACK_MS: i64 = 1_000;
/// After a restart, the first job is done within this.
const RESTART_MS: i64 = 2_000;
/// Half of the workers that got the signal to stop are gone within their grace and this.
const HAND_BACK_SLACK_MS: i64 = 1_000;

pub(super) fn check(look: &Look<'_>) -> Vec<Finding> {
    let faults = &look.history.faults;
    let mut findings = vec![rest(look), exits(look), alone(look), pressure(look)];
    if faults.wanted.iter().any(|kind| kind == "kill") {
        findings.push(recovery(look));
    }
    // A job that depends on something that is down waits for that, whichever process has been restarted.
    let independent = look
        .history
        .workloads
        .iter()
        .any(|workload| *workload != Workload::Dials);
    if independent && faults.wanted.iter().any(|kind| kind == "restart") {
        findings.push(restart(look));
    }
    if !faults.hand_backs_ms.is_empty() {
        findings.push(hand_back(look));
    }
    findings
}

fn rest(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("it comes to rest, and nothing is held", Harm::Late);
    let rest = &look.history.rest;
    finding.expect(rest.unrest.is_none(), || rest.unrest.clone().unwrap_or_default());
    finding.expect(rest.idle_in_transaction == 0, || {
        format!("{} sessions are idle in a transaction", rest.idle_in_transaction)
    });
    finding.expect(rest.advisory_locks == 0, || {
        format!("{} advisory locks are held", rest.advisory_locks)
    });
    finding.expect_or(rest.damage.is_empty(), Harm::Lost, || rest.damage.join("; "));
    finding.expect_or(rest.files_checked > 0, Harm::Weak, || {
        "no index or file was checked".into()
    });
    if let Some(left_alone) = rest.newer_schema_left_alone {
        finding.expect_or(left_alone, Harm::Illegal, || {
            "an older binary touched a newer schema".into()
        });
    }
    finding
}

fn exits(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("no process ends that nobody ended", Harm::Late);
    let unexplained = &look.history.faults.unexplained;
    finding.expect(unexplained.is_empty(), || unexplained.join("; "));
    finding
}

/// Two attempts of a job do not run side by side, except where a process stood still.
fn alone(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("no attempt runs beside the next one", Harm::Stale);
    let mut by_job: HashMap<i64, Vec<(&RowerLog, Run)>> = HashMap::new();
    for rower in &look.history.rowers {
        // What never gives its thread back cannot be cut off; the token alone keeps its result out.
        let yields = |id: &i64| look.jobs.get(id).is_none_or(|job| job.payload["mishap"] != "Glut");
        for run in rower.runs.iter().filter(|run| yields(&run.id)) {
            by_job.entry(run.id).or_default().push((rower, *run));
        }
    }
    for (id, mut runs) in by_job {
        runs.sort_by_key(|(_, run)| (run.from, run.epoch));
        for pair in runs.windows(2) {
            let [(first, earlier), (_, later)] = pair else { continue };
            // An attempt that is stopped by hand learns of it at its next look, and the next attempt may have begun.
            if look.outcome(id, earlier.epoch).is_some_and(by_hand) {
                continue;
            }
            let end = earlier.to.or(first.gone_ms);
            let Some(end) = end.filter(|_| earlier.epoch != later.epoch) else {
                continue;
            };
            let stood = first
                .frozen
                .iter()
                .any(|(from, to)| *from <= end && earlier.from <= *to);
            finding.expect(stood || end <= later.from, || {
                format!(
                    "job {id}: {} ran epoch {} until {} ms into epoch {}",
                    first.name,
                    earlier.epoch,
                    end - later.from,
                    later.epoch
                )
            });
        }
    }
    finding
}

/// The run had what it needs to show anything.
fn pressure(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("every fault of the run happened", Harm::Weak);
    let faults = &look.history.faults;
    for kind in &faults.wanted {
        let times = faults.counts.get(kind).copied().unwrap_or_default();
        finding.expect(times > 0, || format!("{kind} never happened"));
    }
    if faults.wanted.iter().any(|kind| kind == "freeze") {
        let lost: usize = look.history.rowers.iter().map(|rower| rower.lost.len()).sum();
        finding.expect(lost > 0, || "no lease was ever lost".into());
    }
    if faults.wanted.iter().any(|kind| kind.starts_with("commit")) {
        finding.expect(faults.cut_committed > 0, || {
            "no commit was cut off after it had happened".into()
        });
        finding.expect(faults.cut_not_committed > 0, || {
            "no commit was cut off before it happened".into()
        });
    }
    finding
}

/// From each kill to the end of each lease that the dead worker held, where the database was well meanwhile.
pub fn recoveries(history: &super::History) -> Vec<i64> {
    times(&Look::new(history))
}

fn times(look: &Look<'_>) -> Vec<i64> {
    let faults = &look.history.faults;
    let rowers: HashMap<&str, &RowerLog> = look.history.rowers.iter().map(|r| (r.name.as_str(), r)).collect();
    let mut lost_by: HashMap<i64, Vec<i64>> = HashMap::new();
    for outcome in look.history.outcomes.iter().filter(|o| o.ended == Ended::Lost) {
        lost_by.entry(outcome.worker).or_default().push(outcome.ended_ms);
    }
    let mut times = Vec::new();
    for (name, at) in &faults.deaths {
        let Some(rower) = rowers.get(name.as_str()) else {
            continue;
        };
        let workers: HashSet<i64> = rower
            .runs
            .iter()
            .filter_map(|run| look.outcome(run.id, run.epoch))
            .map(|outcome| outcome.worker)
            .collect();
        for ended in workers.iter().filter_map(|worker| lost_by.get(worker)).flatten() {
            let disturbed = faults.outages.iter().any(|(from, to)| from <= ended && at <= to);
            if ended >= at && !disturbed {
                times.push(ended - at);
            }
        }
    }
    times.sort_unstable();
    times
}

/// The value that this share of the sorted ones does not exceed.
pub fn percentile(sorted: &[i64], share: f64) -> Option<i64> {
    let at = ((sorted.len() as f64 * share).ceil() as usize).max(1) - 1;
    sorted.get(at).copied()
}

fn recovery(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new(
        "a dead worker's jobs are claimable within its lease and a second",
        Harm::Late,
    );
    let times = times(look);
    finding.looked_at = times.len();
    if let Some(p99) = percentile(&times, 0.99) {
        // Processes that share a file give each other a third of a lease more: a clock may have been set meanwhile.
        let more = if look.history.has_xids {
            0
        } else {
            look.history.lease_ms / 3
        };
        let limit = look.history.lease_ms + more + RECOVERY_SLACK_MS;
        finding.expect(p99 <= limit, || format!("the 99th of 100 took {p99} ms of {limit}"));
    }
    finding
}

fn restart(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("after a restart the first job is done within two seconds", Harm::Late);
    let mut ends: Vec<i64> = look
        .history
        .outcomes
        .iter()
        .filter(|o| o.ended == Ended::Done)
        .map(|o| o.ended_ms)
        .collect();
    ends.sort_unstable();
    for at in &look.history.faults.restarts {
        let next = ends.get(ends.partition_point(|end| end < at)).map(|end| end - at);
        finding.expect(next.is_some_and(|took| took <= RESTART_MS), || {
            format!("the first job after the restart at {at} was done after {next:?} ms")
        });
    }
    finding
}

/// Half of them within a second; none later than what a worker waits for a database that does not answer.
fn hand_back(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("a worker told to stop is gone soon after its grace", Harm::Late);
    let mut beyond = look.history.faults.hand_backs_ms.clone();
    beyond.sort_unstable();
    if let Some(median) = percentile(&beyond, 0.5) {
        finding.expect(median <= HAND_BACK_SLACK_MS, || {
            format!("half of them took {median} ms longer than their grace")
        });
    }
    let limit = 3 * look.history.lease_ms;
    for beyond in beyond {
        finding.expect(beyond <= limit, || {
            format!("one took {beyond} ms longer than its grace")
        });
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::check::testing::{broken, job_of, sound};

    #[test]
    fn unrest_and_what_is_held_are_found() {
        let spoils: [fn(&mut crate::chaos::history::History); 6] = [
            |h| h.rest.unrest = Some("3 leases".into()),
            |h| h.rest.idle_in_transaction = 1,
            |h| h.rest.advisory_locks = 1,
            |h| h.rest.damage = vec!["an index lies".into()],
            |h| h.rest.newer_schema_left_alone = Some(false),
            |h| h.rest.files_checked = 0,
        ];
        for spoil in spoils {
            let mut history = sound();
            spoil(&mut history);
            assert_eq!(broken(&history), ["it comes to rest, and nothing is held"]);
        }
    }

    #[test]
    fn a_process_that_ended_by_itself_is_found() {
        let mut history = sound();
        history.faults.unexplained.push("rower-3 ended with 101".into());
        assert_eq!(broken(&history), ["no process ends that nobody ended"]);
    }

    #[test]
    fn two_attempts_side_by_side_are_found_unless_one_stood_still() {
        let mut history = sound();
        let id = job_of(&history, "doomed");
        let run = |epoch, from, to| Run {
            id,
            epoch,
            from,
            to: Some(to),
        };
        history.rowers[0].runs.retain(|run| run.id != id);
        history.rowers[0].runs.push(run(1, 100, 250));
        history.rowers[1].runs.push(run(2, 200, 300));
        assert_eq!(broken(&history), ["no attempt runs beside the next one"]);
        history.rowers[0].frozen.push((120, 240));
        assert!(broken(&history).is_empty());
    }

    #[test]
    fn a_fault_that_never_happened_is_found() {
        let mut history = sound();
        history.faults.wanted.push("earthquake".into());
        assert_eq!(broken(&history), ["every fault of the run happened"]);
        let mut history = sound();
        history.rowers.iter_mut().for_each(|rower| rower.lost.clear());
        let found = broken(&history);
        assert!(found.contains(&"every fault of the run happened"), "{found:?}");
    }

    #[test]
    fn a_slow_recovery_is_found() {
        let mut history = sound();
        let lost = history.outcomes.iter_mut().find(|o| o.ended == Ended::Lost).unwrap();
        lost.ended_ms += 60_000;
        let found = broken(&history);
        assert!(
            found.contains(&"a dead worker's jobs are claimable within its lease and a second"),
            "{found:?}"
        );
    }

    #[test]
    fn a_slow_restart_is_found() {
        let mut history = sound();
        history.faults.restarts = vec![i64::MAX / 2];
        assert_eq!(
            broken(&history),
            ["after a restart the first job is done within two seconds"]
        );
    }

    #[test]
    fn a_worker_that_does_not_stop_is_found() {
        let mut history = sound();
        for slow in [vec![20, 30, 30_000], vec![20, 1_500, 1_600]] {
            history.faults.hand_backs_ms = slow;
            assert_eq!(broken(&history), ["a worker told to stop is gone soon after its grace"]);
        }
    }

    #[test]
    fn a_percentile_is_the_value_below_which_the_share_lies() {
        let hundred: Vec<i64> = (1..=100).collect();
        assert_eq!(percentile(&hundred, 0.99), Some(99));
        assert_eq!(percentile(&hundred, 0.5), Some(50));
        assert_eq!(percentile(&[7], 0.99), Some(7));
        assert_eq!(percentile(&[], 0.99), None);
    }
}
