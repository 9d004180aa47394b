//! What was measured: one sample per case, program and round, written down as it comes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::stats::{Spread, spread};

/// How a sample ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Ended {
    Measured,
    /// Did not get through in its time; its values say how far it came.
    Stalled,
    Unsupported,
    Failed,
}

/// One run of one case by one program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) case: String,
    pub(crate) program: String,
    pub(crate) round: usize,
    pub(crate) ended: Ended,
    /// Why, where it did not simply end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    pub(crate) values: BTreeMap<String, f64>,
    /// Values in the order they came: jobs by second, or latencies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) series: Vec<f64>,
}

impl Sample {
    pub(crate) fn new(case: &str, program: &str, round: usize, ended: Ended) -> Sample {
        Sample {
            case: case.to_owned(),
            program: program.to_owned(),
            round,
            ended,
            note: None,
            values: BTreeMap::new(),
            series: Vec::new(),
        }
    }

    pub(crate) fn with(mut self, name: &str, value: f64) -> Sample {
        self.values.insert(name.to_owned(), value);
        self
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Sample {
        self.note = Some(note.into());
        self
    }
}

/// Every sample of a run, in memory and in its file.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    all: Vec<Sample>,
    file: Option<File>,
}

impl Samples {
    /// Starts the file; what a crash leaves in it is whole lines.
    pub(crate) fn open(path: &Path) -> Result<Samples> {
        let file = File::create(path).with_context(|| format!("could not make {}", path.display()))?;
        Ok(Samples {
            all: Vec::new(),
            file: Some(file),
        })
    }

    /// Reads the file of a run that is over.
    pub(crate) fn read(path: &Path) -> Result<Samples> {
        let text = std::fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))?;
        let lines = text.lines().map(serde_json::from_str);
        let all = lines.collect::<Result<Vec<Sample>, _>>();
        Ok(Samples {
            all: all.with_context(|| format!("{} is broken", path.display()))?,
            file: None,
        })
    }

    pub(crate) fn add(&mut self, sample: Sample) {
        if let (Some(file), Ok(line)) = (&mut self.file, serde_json::to_string(&sample))
            && let Err(error) = writeln!(file, "{line}")
        {
            eprintln!("could not write a sample down: {error}");
        }
        self.all.push(sample);
    }

    pub(crate) fn of<'a>(&'a self, case: &'a str, program: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.all
            .iter()
            .filter(move |sample| sample.case == case && sample.program == program)
    }

    /// The programs that tried a case, in the order they came.
    pub(crate) fn programs(&self, case: &str) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for sample in self.all.iter().filter(|sample| sample.case == case) {
            if !names.contains(&sample.program.as_str()) {
                names.push(&sample.program);
            }
        }
        names
    }

    /// Summarises one value over the rounds that ended well.
    pub(crate) fn spread(&self, case: &str, program: &str, value: &str) -> Option<Spread> {
        self.spread_of(case, program, value, Ended::Measured)
    }

    /// The same over the rounds that ended in the given way.
    pub(crate) fn spread_of(&self, case: &str, program: &str, value: &str, ended: Ended) -> Option<Spread> {
        let values: Vec<f64> = self
            .of(case, program)
            .filter(|sample| sample.ended == ended)
            .filter_map(|sample| sample.values.get(value).copied())
            .collect();
        spread(&values)
    }

    pub(crate) fn median(&self, case: &str, program: &str, value: &str) -> Option<f64> {
        self.spread(case, program, value).map(|spread| spread.median)
    }

    pub(crate) fn count(&self, case: &str, program: &str, ended: Ended) -> usize {
        self.of(case, program).filter(|sample| sample.ended == ended).count()
    }

    /// The last reason given for not measuring.
    pub(crate) fn why_not(&self, case: &str, program: &str) -> Option<String> {
        let bad = self.of(case, program).filter(|sample| sample.ended != Ended::Measured);
        bad.last().map(|sample| {
            let word = match sample.ended {
                Ended::Stalled => "stalled",
                Ended::Unsupported => "unsupported",
                Ended::Failed | Ended::Measured => "failed",
            };
            sample
                .note
                .as_ref()
                .map_or_else(|| word.to_owned(), |note| format!("{word}: {note}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stalled_round_is_counted_but_not_averaged() {
        let mut samples = Samples::default();
        samples.add(Sample::new("drain", "river", 0, Ended::Measured).with("per_s", 10.0));
        samples.add(
            Sample::new("drain", "river", 1, Ended::Stalled)
                .with("per_s", 1.0)
                .note("45 s"),
        );
        samples.add(Sample::new("drain", "river", 2, Ended::Measured).with("per_s", 20.0));
        assert_eq!(samples.median("drain", "river", "per_s"), Some(15.0));
        assert_eq!(samples.count("drain", "river", Ended::Stalled), 1);
        assert_eq!(samples.why_not("drain", "river").as_deref(), Some("stalled: 45 s"));
        assert_eq!(samples.median("drain", "awa", "per_s"), None);
        assert_eq!(samples.programs("drain"), ["river"]);
    }
}
