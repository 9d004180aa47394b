//! Workers that are frozen or killed while their programs run: the late result is refused, and the key stays the same.

use rustix::process::Signal;

use crate::work::desk::{Desk, on_each, runs};

/// Notes its number and key, waits until it may go on, and says who it was.
const SLOW: &str = r#"echo "$ROWLOCK_EPOCH $ROWLOCK_EFFECT_KEY" >> calls; echo $$ > "pid-$ROWLOCK_EPOCH"
    while ! [ -e "go-$ROWLOCK_EPOCH" ]; do sleep 0.05; done; echo "\"call $ROWLOCK_EPOCH\"""#;

/// Short, as each test waits for its end; the shortest there is cuts workers off on a busy machine.
const LEASE: [&str; 2] = ["--lease", "5s"];

fn let_go(desk: &Desk, epoch: u32) {
    std::fs::write(desk.file(&format!("go-{epoch}")), "").unwrap();
}

/// Every call so far had one key.
fn assert_one_key(desk: &Desk, calls: usize) {
    let text = desk.read("calls");
    let keys: Vec<&str> = text.lines().map(|line| line.split_once(' ').unwrap().1).collect();
    assert_eq!(keys.len(), calls, "{text}");
    assert!(keys.iter().all(|key| *key == keys[0]), "{text}");
}

#[test]
fn the_late_result_of_a_frozen_workers_program_is_refused() {
    on_each(|desk| {
        let id = desk.enqueue("slow", "{}", &[]);
        let program = desk.shell("slow", SLOW);
        let args = [&["--exec", &program][..], &LEASE].concat();
        let frozen = desk.start("frozen", &args);
        desk.until("the first call", || runs(&desk.file("pid-1")));
        desk.freeze(&frozen);
        // Its program goes on and finishes meanwhile, as it would on a machine that was cut off.
        let other = desk.start("other", &args);
        desk.until("the second call", || runs(&desk.file("pid-2")));
        let_go(desk, 1);
        desk.until("the first call to end", || !runs(&desk.file("pid-1")));
        let_go(desk, 2);
        desk.until("the job to be done", || {
            desk.outcomes(id).last().is_some_and(|end| end == "done")
        });
        frozen.signal(Signal::CONT);
        let refused = format!("job {id} slow: lease lost; the result of attempt 1 is dropped");
        desk.until("the late result to be refused", || {
            desk.read("frozen").contains(&refused)
        });
        drop((frozen, other));
        assert_eq!(desk.outcomes(id), ["lost", "done"]);
        assert_eq!(desk.inspect(id)["job"]["result"], "call 2");
        assert_one_key(desk, 2);
        assert_eq!(desk.run(&["verify"]).code, Some(0));
    });
}

#[test]
fn a_program_whose_worker_has_lost_the_lease_is_ended() {
    on_each(|desk| {
        let id = desk.enqueue("slow", "{}", &[]);
        let program = desk.shell("slow", SLOW);
        let args = [&["--exec", &program][..], &LEASE].concat();
        let frozen = desk.start("frozen", &args);
        desk.until("the first call", || runs(&desk.file("pid-1")));
        desk.freeze(&frozen);
        let other = desk.start("other", &args);
        desk.until("the second call", || runs(&desk.file("pid-2")));
        frozen.signal(Signal::CONT);
        desk.until("the first call to be ended", || !runs(&desk.file("pid-1")));
        let_go(desk, 2);
        desk.until("the job to be done", || {
            desk.outcomes(id).last().is_some_and(|end| end == "done")
        });
        assert_eq!(desk.inspect(id)["job"]["result"], "call 2");
        drop((frozen, other));
    });
}

#[test]
fn a_killed_workers_program_goes_on_alone_and_changes_nothing() {
    on_each(|desk| {
        let id = desk.enqueue("slow", "{}", &[]);
        let program = desk.shell("slow", SLOW);
        let args = [&["--exec", &program][..], &LEASE].concat();
        let killed = desk.start("killed", &args);
        desk.until("the first call", || runs(&desk.file("pid-1")));
        killed.signal(Signal::KILL);
        let other = desk.start("other", &args);
        desk.until("the second call", || runs(&desk.file("pid-2")));
        assert!(runs(&desk.file("pid-1")), "nobody is left to end it");
        let_go(desk, 1);
        let_go(desk, 2);
        desk.until("the job to be done", || {
            desk.outcomes(id).last().is_some_and(|end| end == "done")
        });
        desk.until("the first to end", || !runs(&desk.file("pid-1")));
        assert_eq!(desk.outcomes(id), ["lost", "done"]);
        assert_eq!(desk.inspect(id)["job"]["result"], "call 2");
        assert_one_key(desk, 2);
        drop((killed, other));
    });
}

#[test]
fn a_parked_call_of_a_killed_worker_is_not_made_again() {
    on_each(|desk| {
        let id = desk.enqueue("slow", "{}", &[]);
        let program = desk.shell("slow", SLOW);
        let args = [&["--exec", &program, "--on-unknown", "park"][..], &LEASE].concat();
        let killed = desk.start("killed", &args);
        desk.until("the call", || runs(&desk.file("pid-1")));
        killed.signal(Signal::KILL);
        let other = desk.start("other", &args);
        desk.until("the case", || desk.inspect(id)["job"]["state"] == "case");
        assert_one_key(desk, 1);
        let case = desk.inspect(id)["case"].to_string();
        assert!(
            case.contains("is in doubt") && case.contains("rowlock effect resolve"),
            "{case}"
        );
        let_go(desk, 1);
        desk.until("the call to end", || !runs(&desk.file("pid-1")));
        drop((killed, other));
    });
}

#[test]
fn a_stored_reply_is_not_asked_for_again_by_a_rerun() {
    on_each(|desk| {
        let id = desk.enqueue("count", "{}", &[]);
        let program = desk.shell("count", "echo x >> count; wc -l < count");
        desk.work(&["--exec", &program]);
        assert_eq!(desk.run(&["rerun", &id.to_string()]).code, Some(0));
        desk.work(&["--exec", &program]);
        assert_eq!(desk.outcomes(id), ["done", "done"]);
        assert_eq!(desk.inspect(id)["job"]["result"], 1);
        assert_eq!(desk.read("count"), "x\n");
    });
}
