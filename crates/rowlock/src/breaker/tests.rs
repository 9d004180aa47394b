use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn breaker(state: BreakerState, failures: i32) -> BreakerView {
    BreakerView {
        name: "till".into(),
        state,
        forced: false,
        failures,
        trips: 0,
        open_until: None,
        probing: 0,
        policy: Breaker::after(3).cooldown(Duration::from_secs(10)).probes(2),
        version: 7,
        changed_at: at(0),
        changed_by: "somebody".into(),
        reason: None,
        due: false,
    }
}

fn note(good: bool, failures: i32, probe: bool) -> Note {
    Note {
        name: "till".into(),
        version: 7,
        good,
        failures,
        error: (failures > 0).then(|| "timed out".into()),
        probe,
        by: "w".into(),
    }
}

#[test]
fn it_opens_at_the_last_of_so_many_failures_in_a_row() {
    let two = breaker(BreakerState::Closed, 0)
        .noted(&note(false, 2, false), at(5))
        .unwrap();
    assert_eq!((two.state, two.failures, two.version), (BreakerState::Closed, 2, 7));
    let three = two.noted(&note(false, 1, false), at(6)).unwrap();
    assert_eq!((three.state, three.version, three.trips), (BreakerState::Open, 8, 1));
    assert_eq!(
        (three.open_until, three.reason.as_deref()),
        (Some(at(16)), Some("timed out"))
    );
    assert_eq!((three.changed_at, three.changed_by.as_str()), (at(6), "w"));
}

#[test]
fn a_success_in_between_starts_the_count_anew() {
    let two = breaker(BreakerState::Closed, 2);
    assert_eq!(two.noted(&note(true, 0, false), at(5)).unwrap().failures, 0);
    let again = two.noted(&note(true, 1, false), at(5)).unwrap();
    assert_eq!((again.state, again.failures), (BreakerState::Closed, 1));
    assert_eq!(
        breaker(BreakerState::Closed, 0).noted(&note(true, 0, false), at(5)),
        None
    );
}

#[test]
fn what_was_claimed_before_the_last_change_counts_for_nothing() {
    for state in [BreakerState::Closed, BreakerState::Open, BreakerState::HalfOpen] {
        for (good, failures, probe) in [(true, 0, true), (false, 9, true), (false, 9, false), (true, 0, false)] {
            let late = Note {
                version: 6,
                ..note(good, failures, probe)
            };
            assert_eq!(breaker(state, 2).noted(&late, at(5)), None);
        }
    }
}

#[test]
fn only_probes_decide_while_it_is_half_open_and_nothing_does_while_it_is_open() {
    let half = BreakerView {
        trips: 1,
        ..breaker(BreakerState::HalfOpen, 0)
    };
    assert_eq!(half.noted(&note(true, 0, false), at(5)), None);
    assert_eq!(half.noted(&note(false, 9, false), at(5)), None);
    assert_eq!(
        half.noted(&note(false, 0, true), at(5)),
        None,
        "a probe that said nothing"
    );
    let closed = half.noted(&note(true, 0, true), at(5)).unwrap();
    assert_eq!(
        (closed.state, closed.trips, closed.version),
        (BreakerState::Closed, 0, 8)
    );
    let open = half.noted(&note(true, 1, true), at(5)).unwrap();
    assert_eq!(
        (open.state, open.trips, open.open_until),
        (BreakerState::Open, 2, Some(at(25)))
    );
    assert_eq!(breaker(BreakerState::Open, 0).noted(&note(true, 0, true), at(5)), None);
}

#[test]
fn the_cooldown_doubles_up_to_its_longest() {
    let policy = Breaker::after(1)
        .cooldown(Duration::from_secs(30))
        .cooldown_max(Duration::from_secs(100));
    let waits = [1, 2, 3, 4, 40, i32::MAX].map(|trips| policy.wait(trips).as_secs());
    assert_eq!(waits, [30, 60, 100, 100, 100, 100]);
}

#[test]
fn a_probe_is_let_through_when_the_cooldown_is_over_and_nobody_forced_it_open() {
    let open = BreakerView {
        open_until: Some(at(10)),
        reason: Some("timed out".into()),
        ..breaker(BreakerState::Open, 3)
    };
    assert_eq!(open.probed("w", at(9)), None);
    let half = open.probed("w", at(10)).unwrap();
    assert_eq!(
        (half.state, half.version, half.open_until),
        (BreakerState::HalfOpen, 8, None)
    );
    assert_eq!(half.reason.as_deref(), Some("timed out"));
    let forced = BreakerView { forced: true, ..open };
    assert_eq!(forced.probed("w", at(10)), None);
    assert_eq!(breaker(BreakerState::Closed, 0).probed("w", at(10)), None);
}

#[test]
fn what_a_person_forced_stays_until_it_is_let_go() {
    let open = breaker(BreakerState::Closed, 2)
        .forced(Force::Open, "tess", at(5))
        .unwrap();
    assert_eq!(
        (open.state, open.forced, open.open_until, open.version),
        (BreakerState::Open, true, None, 8)
    );
    assert_eq!(open.forced(Force::Open, "theo", at(6)), None);
    let closed = open.forced(Force::Closed, "theo", at(6)).unwrap();
    let many = Note {
        version: closed.version,
        ..note(false, 100, false)
    };
    assert_eq!(closed.noted(&many, at(7)), None);
    let own = closed.forced(Force::Auto, "tess", at(8)).unwrap();
    assert_eq!((own.state, own.forced, own.failures), (BreakerState::Closed, false, 0));
    assert_eq!(own.forced(Force::Auto, "tess", at(9)), None);
}

#[test]
fn bad_settings_are_named() {
    let bad = [
        (Breaker::after(0), "after(0)"),
        (Breaker::after(1).probes(0), "probes(0)"),
        (Breaker::after(1).cooldown(Duration::from_millis(10)), "cooldown 10ms"),
        (
            Breaker::after(1).cooldown_max(Duration::from_secs(1)),
            "longest cooldown 1s",
        ),
    ];
    for (breaker, said) in bad {
        let problem = breaker.check("till").unwrap_err().to_string();
        assert!(
            problem.contains("breaker \"till\"") && problem.contains(said),
            "{problem}"
        );
    }
    assert!(
        Breaker::after(5)
            .cooldown(Duration::from_secs(3600))
            .probes(9)
            .check("till")
            .is_ok()
    );
}

#[test]
fn a_worker_remembers_a_success_until_there_is_a_failure_to_take_back() {
    let known = KnownBreakers::default();
    assert!(!known.admit(&["till".into()]), "nobody knows where it stands");
    assert!(known.admit(&[]));
    assert!(known.set(&[breaker(BreakerState::Closed, 0)]));
    assert!(known.admit(&["till".into()]));
    assert!(known.keep_good("till", 7) && !known.keep_good("till", 6));
    assert!(known.take_good("till", 7) && !known.take_good("till", 7));
    assert!(
        !known.set(&[breaker(BreakerState::Closed, 2)]),
        "no news for the claimer"
    );
    assert!(!known.keep_good("till", 7), "there is something to take back");
    let open = BreakerView {
        version: 8,
        due: true,
        ..breaker(BreakerState::Open, 0)
    };
    assert!(known.set(&[open]));
    assert!(known.any_due());
    assert_eq!(known.to_try(&["till".into()]), Some(vec!["till".into()]));
    let both = ["bank".into(), "till".into()];
    assert_eq!(known.to_try(&both), None, "nobody knows where the bank stands");
    let bank = BreakerView {
        name: "bank".into(),
        ..breaker(BreakerState::Open, 0)
    };
    known.set(&[bank]);
    assert_eq!(known.to_try(&both), None, "the bank is not to be tried yet");
    assert!(!known.admit(&["till".into()]));
    let back = [breaker(BreakerState::Closed, 0)];
    assert!(known.set(&back), "a database that went back is believed");
    assert_eq!(known.to_try(&["till".into()]), Some(Vec::new()));
}
