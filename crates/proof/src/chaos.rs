//! The chaos run: real workers and producers on a real database, everything that can go wrong going wrong under them,
//! and a checker over what really happened.

pub mod base;
pub mod check;
pub mod faults;
pub mod fleet;
pub mod gather;
pub mod ground;
pub mod history;
pub mod jobs;
pub mod log;
pub mod mutants;
pub mod orders;
pub mod report;
mod rest;
pub mod run;
pub mod volume;

use rustix::event::{PollFd, PollFlags, poll};

/// Ends the process when nobody holds the other end of its stdin any more. Only looks: what is written there is for
/// the fail point at which this process stands.
pub fn end_with_parent() {
    let stdin = std::io::stdin();
    loop {
        let mut ends = [PollFd::new(&stdin, PollFlags::empty())];
        if poll(&mut ends, None).is_ok() && ends[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
            std::process::exit(3);
        }
    }
}
