//! A small history in which all is well, for tests to spoil.

use rowlock::Ended;
use serde_json::{Value, json};

use super::check;
use crate::chaos::{
    history::{BreakerMove, EffectRow, Faults, History, JobRow, LedgerRow, OutcomeRow, Place, Rest, RowerLog, Run},
    jobs::{ACCOUNTS, OPENING_BALANCE},
    orders::Workload,
};

/// The checks that this history breaks.
pub(super) fn broken(history: &History) -> Vec<&'static str> {
    let findings = check(history);
    findings.iter().filter(|f| !f.holds()).map(|f| f.name).collect()
}

pub(super) fn broken_names(history: &History) -> Vec<String> {
    broken(history).into_iter().map(str::to_owned).collect()
}

/// A job of this kind.
pub(super) fn job_of(history: &History, kind: &str) -> i64 {
    history.jobs.iter().find(|job| job.kind == kind).unwrap().id
}

/// The order of a charge that is done.
pub(super) fn charge(history: &History, park: bool) -> i64 {
    let job = history
        .jobs
        .iter()
        .find(|job| job.kind == "charge" && job.payload["park"] == park);
    job.unwrap().payload["order"].as_i64().unwrap()
}

struct Maker {
    history: History,
    clock: i64,
}

impl Maker {
    /// A job whose order has the same number.
    fn job(&mut self, kind: &str, attempts_max: i32, mut payload: Value) -> i64 {
        let id = self.history.jobs.len() as i64 + 1;
        if payload.get("slot").is_none() && payload.get("order").is_none() {
            payload["order"] = id.into();
            self.history.purchases.push((id, id));
            self.history.rowers[0].confirmed.push((id, id));
        }
        self.history.jobs.push(JobRow {
            id,
            kind: kind.into(),
            payload,
            attempts_max,
            chain: None,
            place: Place::Ready,
            xid: 0,
            group: None,
            created_ms: self.clock,
            committed_ms: self.clock,
        });
        id
    }

    /// One more attempt of a job, run by the first rower.
    fn attempt(&mut self, id: i64, ended: Ended, place: Place) {
        let before = self.history.outcomes.iter().filter(|o| o.id == id).count() as i64;
        let (from, to) = (self.clock, self.clock + 5);
        self.clock += 10;
        let epoch = before + 1;
        self.history.outcomes.push(OutcomeRow {
            id,
            epoch,
            worker: 11,
            attempt: epoch as i32,
            ended,
            started_ms: from,
            ended_ms: to,
            xid: self.clock,
            error: (ended != Ended::Done).then(|| "it always fails".to_owned()),
        });
        self.history.jobs[id as usize - 1].place = place;
        let rower = &mut self.history.rowers[0];
        rower.runs.push(Run {
            id,
            epoch,
            from,
            to: Some(to),
        });
        if ended == Ended::Done {
            rower.done.push((id, epoch));
        }
    }

    fn done(&mut self, id: i64, note: &str) {
        self.attempt(id, Ended::Done, Place::Nowhere);
        let last = self.history.outcomes.last().unwrap();
        let (epoch, xid) = (last.epoch, last.xid);
        let job = &self.history.jobs[id as usize - 1];
        let purchase = job
            .payload
            .get("order")
            .or(job.payload.get("slot"))
            .and_then(Value::as_i64);
        self.history.ledger.push(LedgerRow {
            job: id,
            epoch,
            purchase: purchase.unwrap(),
            note: note.into(),
            xid,
        });
    }

    fn chain(&mut self) {
        let root = self.job("link", 100, json!({"depth": 1}));
        self.done(root, "link 1");
        let mut ends = vec![self.clock];
        for depth in [2, 3, 3, 4, 4, 5, 5] {
            let id = self.job("link", 100, json!({"depth": depth, "order": root}));
            let job = &mut self.history.jobs[id as usize - 1];
            job.chain = Some(root);
            job.xid = *ends.last().unwrap();
            self.done(id, "link");
            ends.push(self.clock);
        }
    }

    fn charges(&mut self) {
        for (park, receipt) in [(false, 900), (true, 901)] {
            let id = self.job("charge", 100, json!({"park": park}));
            self.done(id, &receipt.to_string());
            let till = if park {
                &mut self.history.blind_till
            } else {
                &mut self.history.till
            };
            till.receipts.insert(id, vec![receipt]);
            self.history.effects.push(EffectRow {
                job: id,
                state: "replied".into(),
            });
        }
        self.history.till.repeats = 1;
        let doubtful = self.job("charge", 100, json!({"park": true}));
        self.attempt(doubtful, Ended::Retired, Place::Case);
        self.history.effects.push(EffectRow {
            job: doubtful,
            state: "uncertain".into(),
        });
    }

    /// One fails, the breaker opens, and the same job finds out that all is well again.
    fn dials(&mut self) {
        let id = self.job("dial", 100, json!({}));
        self.attempt(id, Ended::Retried, Place::Ready);
        for (version, to) in [(2, "open"), (3, "half_open")] {
            self.moved(version, to);
        }
        self.done(id, "dial");
        self.moved(4, "closed");
    }

    /// Three, one after the other; the first is tried twice.
    fn postings(&mut self) {
        let ids = [(); 3].map(|()| {
            let id = self.job("posting", 100, json!({}));
            self.clock += 1;
            self.history.jobs[id as usize - 1].group = Some("group:1".into());
            id
        });
        self.attempt(ids[0], Ended::Retried, Place::Ready);
        for id in ids {
            self.done(id, "posting");
        }
    }

    /// One re-run after it was done, one cancelled that nobody had, one retired from its lease and reopened.
    fn errands(&mut self) {
        let again = self.job("errand", 100, json!({}));
        self.done(again, "errand");
        self.decided(again, "rerun");
        self.done(again, "errand");
        self.history.outcomes.last_mut().unwrap().attempt = 1;
        let cancelled = self.job("errand", 100, json!({}));
        self.decided(cancelled, "delay");
        self.decided(cancelled, "run now");
        self.ended_by_hand(cancelled, "cancel", (0, Ended::Cancelled, Place::Nowhere));
        let retired = self.job("errand", 100, json!({}));
        self.ended_by_hand(retired, "retire", (1, Ended::Retired, Place::Case));
        self.decided(retired, "reopen");
        self.history.reopened.push(retired);
        self.done(retired, "errand");
        self.history.outcomes.last_mut().unwrap().attempt = 1;
    }

    fn decided(&mut self, id: i64, verb: &str) {
        self.history.deeds.push((id, verb.to_owned()));
    }

    fn ended_by_hand(&mut self, id: i64, verb: &str, (attempt, ended, place): (i32, Ended, Place)) {
        self.attempt(id, ended, place);
        let outcome = self.history.outcomes.last_mut().unwrap();
        (outcome.worker, outcome.attempt) = (0, attempt);
        self.decided(id, verb);
    }

    fn moved(&mut self, version: i64, to: &str) {
        self.history.line.push(BreakerMove {
            version,
            to: to.into(),
            at_ms: self.clock,
            committed_ms: self.clock + 2,
        });
        self.clock += 5;
    }

    fn guards(&mut self) {
        for seen in [0, 1] {
            let id = self.job("guarded", 100, json!({"entity": 4}));
            self.done(id, "guarded");
            self.history.decisions.push((4, seen, id));
        }
        let changed = self.job("guarded", 100, json!({"entity": 4}));
        self.attempt(changed, Ended::Done, Place::Nowhere);
    }
}

fn rower(name: &str) -> RowerLog {
    RowerLog {
        name: name.into(),
        ..RowerLog::default()
    }
}

/// All is well in it, and every check has something to look at.
pub(super) fn sound() -> History {
    let mut maker = Maker {
        history: History {
            workloads: Workload::ALL.to_vec(),
            balances: vec![OPENING_BALANCE; ACCOUNTS as usize],
            has_xids: true,
            rowers: vec![rower("one"), rower("two")],
            lease_ms: 2_000,
            rest: Rest {
                files_checked: 1,
                ..Rest::default()
            },
            ..History::default()
        },
        clock: 1_000,
    };
    let transfer = maker.job("transfer", 100, json!({"from": 1, "to": 2, "amount": 5}));
    maker.done(transfer, "transfer");
    let again = maker.job("transfer", 100, json!({"from": 2, "to": 3, "amount": 7}));
    let killed_at = maker.clock;
    maker.attempt(again, Ended::Lost, Place::Ready);
    maker.done(again, "transfer");
    let tally = maker.job("tally", 100, json!({"from": 1, "to": 3}));
    maker.done(tally, "tally");
    for (account, change) in [(1, -6), (2, -2), (3, 8)] {
        maker.history.balances[account - 1] += change;
    }
    maker.chain();
    maker.charges();
    maker.guards();
    maker.dials();
    maker.postings();
    maker.errands();
    let keyed = maker.job("keyed", 100, json!({"slot": 44}));
    maker.done(keyed, "keyed");
    for rower in &mut maker.history.rowers {
        rower.keyed.push((44, keyed));
    }
    for (kind, attempts) in [("poison", 3), ("doomed", 4)] {
        let id = maker.job(kind, attempts, json!({}));
        for attempt in 1..=attempts {
            let (ended, place) = match (kind, attempt == attempts) {
                ("poison", true) => (Ended::Lost, Place::Case),
                ("poison", false) => (Ended::Lost, Place::Ready),
                (_, true) => (Ended::Retired, Place::Case),
                (_, false) => (Ended::Retried, Place::Ready),
            };
            maker.attempt(id, ended, place);
        }
    }
    maker.job("nobodys", 1, json!({}));
    let mut history = maker.history;
    history.rowers[0].lost.push((again, 1));
    history.rowers[0].rolled_back.push(40_000);
    history.rowers[0].resolved = vec![(transfer, 1, true), (again, 1, false)];
    history.faults = Faults {
        wanted: ["kill", "freeze", "restart", "commit cut"].map(str::to_owned).to_vec(),
        counts: ["kill", "freeze", "restart", "commit cut"]
            .map(|kind| (kind.to_owned(), 1))
            .into(),
        deaths: vec![("one".into(), killed_at)],
        restarts: vec![1_000],
        cut_committed: 1,
        cut_not_committed: 1,
        hand_backs_ms: vec![10],
        ..Faults::default()
    };
    history
}

#[test]
fn a_sound_history_breaks_nothing() {
    let findings = check(&sound());
    let broken: Vec<_> = findings.iter().filter(|f| !f.holds()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn an_empty_history_has_proven_nothing() {
    let history = History {
        workloads: Workload::ALL.to_vec(),
        has_xids: true,
        ..History::default()
    };
    let findings = check(&history);
    let green: Vec<_> = findings.iter().filter(|f| f.holds()).map(|f| f.name).collect();
    // That nobody ended needs nobody.
    assert_eq!(green, ["no process ends that nobody ended"], "{findings:?}");
}
