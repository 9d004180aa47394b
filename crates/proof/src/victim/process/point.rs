//! The points that the victim's own handlers add to those of the library, with the same manners.

use std::{
    io::{BufRead, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use crate::victim::POINT_VAR;

static HIT: AtomicBool = AtomicBool::new(false);

/// Says on stdout that it is here and waits for a line on stdin, the first time that the point asked for is hit.
pub(crate) fn stand(name: &str) {
    let wanted = std::env::var(POINT_VAR).is_ok_and(|wanted| wanted == name);
    if !wanted || HIT.swap(true, Ordering::SeqCst) {
        return;
    }
    println!("at {name}");
    let _ = std::io::stdout().flush();
    let mut line = String::new();
    // Closed instead: the parent is gone, and so is this process in a moment.
    let _ = std::io::stdin().lock().read_line(&mut line);
}
