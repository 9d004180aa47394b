//! Processor time, read from `/proc`: of the programs this one has started and waited for, and of the server.
//!
//! A rate says how long the work took on a machine that others use too. The processor time of the work itself is
//! steadier, so commits are compared by it. The kernel counts in ticks, usually of 10 ms.

use std::fs;

use anyhow::{Context, Result};
use rustix::param::clock_ticks_per_second;

/// What one process has used, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Used {
    parent: i32,
    own: u64,
    /// Of children that it has waited for.
    children: u64,
}

/// Seconds that the children of this process have used, as far as they are over.
pub(crate) fn of_children() -> Result<f64> {
    let text = fs::read_to_string("/proc/self/stat").context("could not read /proc/self/stat")?;
    let used = parse(&text).context("/proc/self/stat has another form")?;
    Ok(seconds(used.children))
}

/// Seconds that a process and its children have used, over or not. A child is counted once: by itself until it is
/// waited for, by its parent afterwards.
pub(crate) fn of_family(pid: i32) -> Result<f64> {
    let read = |pid: &str| {
        fs::read_to_string(format!("/proc/{pid}/stat"))
            .ok()
            .and_then(|text| parse(&text))
    };
    let root = read(&pid.to_string()).with_context(|| format!("no process {pid}"))?;
    let mut ticks = root.own + root.children;
    for entry in fs::read_dir("/proc").context("could not read /proc")? {
        let name = entry.context("could not read /proc")?.file_name();
        let child = name.to_str().filter(|name| name.parse::<i32>().is_ok()).and_then(read);
        if let Some(child) = child.filter(|child| child.parent == pid) {
            ticks += child.own + child.children;
        }
    }
    Ok(seconds(ticks))
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / clock_ticks_per_second() as f64
}

/// The name of a process is in brackets and may have brackets and spaces in it.
fn parse(stat: &str) -> Option<Used> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Used {
        parent: fields.get(1)?.parse().ok()?,
        own: number(11)? + number(12)?,
        children: number(13)? + number(14)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let stat = "7 (a) b) S 3 7 7 0 -1 4194304 1 2 3 4 50 6 700 8 20 0 1 0 99 1 2";
        let used = parse(stat).unwrap();
        assert_eq!((used.parent, used.own, used.children), (3, 56, 708));
        assert_eq!(parse("7 (a) S 3"), None);
    }

    #[test]
    fn the_time_of_a_child_is_counted_once_it_is_over() {
        let before = of_children().unwrap();
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let status = std::process::Command::new("sh").args(["-c", busy]).status().unwrap();
        assert!(status.success());
        assert!(of_children().unwrap() > before);
        let family = of_family(std::process::id() as i32).unwrap();
        assert!(family >= of_children().unwrap());
    }
}
