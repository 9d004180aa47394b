//! A run as the report sees it: its programs, samples and sizes. Taken live, or read back from its folder.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::programs::Programs;
use crate::sample::Samples;
use crate::sizes::Sizes;
use crate::verdict::LANES;

/// What is known of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) sizes: Sizes,
    /// Print the object instead of the tables.
    pub(crate) json: bool,
    pub(crate) out: PathBuf,
    pub(crate) programs: Programs,
    pub(crate) samples: Samples,
    /// Effects lost or doubled, in words.
    pub(crate) violations: Vec<String>,
    pub(crate) lanes: Vec<String>,
}

impl Run {
    /// Whether one of these benchmarks was asked for.
    pub(crate) fn wants(&self, lanes: &[&str]) -> bool {
        lanes.iter().any(|lane| self.lanes.iter().any(|wanted| wanted == lane))
    }

    /// Reads a run from its folder, to write its tables and pictures again.
    pub(crate) fn read(dir: &Path, json: bool) -> Result<Run> {
        let path = dir.join("summary.json");
        let text = std::fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
        let summary: Value = serde_json::from_str(&text).with_context(|| format!("{} is broken", path.display()))?;
        let reduced = summary["reduced"].as_bool().unwrap_or_default();
        let mut sizes = if reduced { Sizes::quick() } else { Sizes::full() };
        if let Some(rounds) = summary["rounds"].as_u64() {
            sizes.rounds = rounds as usize;
        }
        let ran = |name: &str| summary["lanes"].get(name).is_some();
        let violations = summary["violations"].as_array().cloned().unwrap_or_default();
        Ok(Run {
            sizes,
            json,
            out: dir.to_path_buf(),
            programs: Programs::recalled(&summary),
            samples: Samples::read(&dir.join("samples.jsonl"))?,
            violations: violations
                .iter()
                .filter_map(|text| text.as_str().map(str::to_owned))
                .collect(),
            lanes: LANES
                .iter()
                .filter(|lane| ran(lane.name))
                .map(|lane| lane.name.to_owned())
                .collect(),
        })
    }
}
