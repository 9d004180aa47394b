//! Named points at which the proof suites stop a real process, to kill it or to freeze it there.
//!
//! Without the test-only `--cfg rowlock_faults` a point compiles to nothing.

/// Stops here when a test asked for it: prints the point's name on stdout and waits for a line on stdin.
macro_rules! point {
    ($name:literal) => {
        #[cfg(rowlock_faults)]
        $crate::fault::hit($name);
    };
}

pub(crate) use point;

#[cfg(rowlock_faults)]
pub(crate) fn hit(name: &str) {
    use std::{
        io::{BufRead, Write},
        sync::atomic::{AtomicBool, Ordering},
    };

    static DONE: AtomicBool = AtomicBool::new(false);
    let wanted = std::env::var("ROWLOCK_FAULT").is_ok_and(|wanted| wanted == name);
    if !wanted || DONE.swap(true, Ordering::SeqCst) {
        return;
    }
    let mut out = std::io::stdout().lock();
    // The parent reads the name and then decides this process's fate; a closed pipe means that it is gone.
    if writeln!(out, "at {name}").and_then(|()| out.flush()).is_ok() {
        drop(out);
        let mut line = String::new();
        let _ = std::io::stdin().lock().read_line(&mut line);
    }
}
