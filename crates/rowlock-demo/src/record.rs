//! `--record FILE`: the run as a JSON file, for pictures and for readers who want to see more than the final count.
//!
//! A sample holds what one look at the tables shows, so its names are narrower than those of the result. What the
//! provider did is counted at the end only, from the provider's log.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::value::RawValue;

/// What a scene's help says about the file.
pub(crate) const HELP: &str = "--record FILE writes a JSON object:
  scene, database, seed, workers   what ran where; workers counts processes
  orders, evaluations or rows      how much work there was
  result                           the object that --json prints
  samples                          about ten per second: t_ms, done (jobs finished so far) and, where
                                   the scene can count them during the run, doubled_rows (orders with
                                   two rows in one table so far) and missing_rows (finished jobs
                                   without their row so far)
  events                           t_ms, worker (from 1), event: started, killed (SIGKILL), ended
                                   (by itself) or stopped (by the demo, at the end)
  t_ms counts from the start of the first worker.";

/// What happened to a worker process.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum What {
    Started,
    Killed,
    /// By itself.
    Ended,
    /// By the demo, when the run was over.
    Stopped,
}

#[derive(Serialize)]
struct Event {
    t_ms: u64,
    worker: usize,
    event: What,
}

/// What can be counted wrong while the run goes on.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct Faults {
    pub(crate) doubled_rows: i64,
    pub(crate) missing_rows: i64,
}

#[derive(Serialize)]
struct Sample {
    t_ms: u64,
    done: i64,
    #[serde(flatten)]
    faults: Option<Faults>,
}

#[derive(Default)]
struct Notes {
    /// When the first worker was started.
    start: Option<Instant>,
    samples: Vec<Sample>,
    events: Vec<Event>,
}

/// The recorder; its clones write into the same file. Without a file it keeps nothing.
#[derive(Clone)]
pub(crate) struct Tape {
    file: Option<PathBuf>,
    notes: Arc<Mutex<Notes>>,
}

/// The head of the file.
#[derive(Serialize)]
pub(crate) struct Head {
    pub(crate) scene: &'static str,
    pub(crate) database: &'static str,
    pub(crate) seed: u64,
    /// How much work there is, by what it is called.
    #[serde(flatten)]
    pub(crate) size: BTreeMap<&'static str, i64>,
}

#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    head: Head,
    workers: usize,
    result: &'a RawValue,
    samples: &'a [Sample],
    events: &'a [Event],
}

impl Tape {
    pub(crate) fn new(file: Option<PathBuf>) -> Tape {
        Tape {
            file,
            notes: Arc::default(),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.file.is_some()
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what happened to the worker in this slot, counted from 0.
    pub(crate) fn event(&self, slot: usize, event: What) {
        if !self.is_on() {
            return;
        }
        let mut notes = self.notes();
        let t_ms = notes.t_ms();
        notes.events.push(Event {
            t_ms,
            worker: slot + 1,
            event,
        });
    }

    pub(crate) fn sample(&self, done: i64, faults: Option<Faults>) {
        if !self.is_on() {
            return;
        }
        let mut notes = self.notes();
        let t_ms = notes.t_ms();
        notes.samples.push(Sample { t_ms, done, faults });
    }

    /// Writes the file, one sample or event to a line. `result` is the JSON object of the final count.
    pub(crate) fn write(&self, head: Head, result: &str) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let notes = self.notes();
        let whole = Whole {
            head,
            workers: notes.events.iter().map(|event| event.worker).max().unwrap_or(0),
            result: serde_json::from_str(result)?,
            samples: &notes.samples,
            events: &notes.events,
        };
        let text = by_line(&serde_json::to_string(&whole)?);
        std::fs::write(file, text).with_context(|| format!("the record cannot be written to {}", file.display()))
    }
}

impl Notes {
    fn t_ms(&mut self) -> u64 {
        let start = *self.start.get_or_insert_with(Instant::now);
        u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Breaks the lines of the file where a reader would. No name or value in it holds a brace or a bracket.
fn by_line(json: &str) -> String {
    json.replace("[{", "[\n{").replace("},{", "},\n{").replace("}]", "}\n]") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tape_without_a_file_keeps_nothing() {
        let tape = Tape::new(None);
        tape.event(0, What::Started);
        tape.sample(3, None);
        assert!(tape.notes().events.is_empty() && tape.notes().samples.is_empty());
    }

    #[test]
    fn the_file_is_one_json_object_with_a_line_for_each_sample_and_event() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.json");
        let tape = Tape::new(Some(file.clone()));
        let faults = Faults {
            doubled_rows: 0,
            missing_rows: 1,
        };
        tape.event(0, What::Started);
        tape.sample(3, Some(faults));
        tape.sample(4, None);
        let head = Head {
            scene: "orders",
            database: "SQLite",
            seed: 7,
            size: BTreeMap::from([("orders", 2)]),
        };
        tape.write(head, r#"{"lost":0}"#).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&json["scene"], &json["orders"]), (&"orders".into(), &2.into()));
        assert_eq!((&json["workers"], &json["result"]["lost"]), (&1.into(), &0.into()));
        assert_eq!(
            (&json["samples"][0]["done"], &json["samples"][0]["missing_rows"]),
            (&3.into(), &1.into())
        );
        assert!(json["samples"][1].get("missing_rows").is_none());
        assert_eq!(
            (&json["events"][0]["worker"], &json["events"][0]["event"]),
            (&1.into(), &"started".into())
        );
        assert_eq!(text.lines().count(), 6, "{text}");
    }
}
