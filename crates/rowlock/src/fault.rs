//! Named points where the proof suites stop a real process, to kill it or to freeze it.
//!
//! Without the private feature `__faults`, which only the suites turn on, a point compiles to nothing.

/// Stops here when a test asked for this point: prints the point's name on stdout and waits for a line on stdin.
macro_rules! point {
    ($name:literal) => {
        #[cfg(feature = "__faults")]
        $crate::fault::hit($name);
    };
}

pub(crate) use point;

/// Whether this process must have this known bug, which the proof must then catch.
macro_rules! mutant {
    ($name:literal) => {{
        #[cfg(feature = "__faults")]
        {
            $crate::fault::is_mutant($name)
        }
        #[cfg(not(feature = "__faults"))]
        {
            false
        }
    }};
}

pub(crate) use mutant;

#[cfg(feature = "__faults")]
pub(crate) fn is_mutant(name: &str) -> bool {
    static MUTANT: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    MUTANT
        .get_or_init(|| std::env::var("ROWLOCK_MUTANT").ok())
        .as_deref()
        .is_some_and(|mutants| mutants.split(';').any(|mutant| mutant == name))
}

/// A statement's text: the file of the same path in the folder `ROWLOCK_MUTANT_SQL`, if there is one.
#[cfg(feature = "__faults")]
pub(crate) fn statement(name: &str, text: &'static str) -> std::borrow::Cow<'static, str> {
    let folder = std::env::var_os("ROWLOCK_MUTANT_SQL").map(std::path::PathBuf::from);
    let other = folder.and_then(|folder| std::fs::read_to_string(folder.join(name).with_extension("sql")).ok());
    other.map_or(text.into(), Into::into)
}

#[cfg(feature = "__faults")]
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
    // The parent reads the name and then decides what happens to this process; a closed pipe means that the parent is
    // gone.
    if writeln!(out, "at {name}").and_then(|()| out.flush()).is_ok() {
        drop(out);
        let mut line = String::new();
        let _ = std::io::stdin().lock().read_line(&mut line);
    }
}
