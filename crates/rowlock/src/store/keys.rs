//! The keys of one enqueue: which of its drafts are new, which name a job that exists, and which contradict one.
//!
//! Each backend has its statements; what follows from their answers is decided here, once. Keys are asked for sorted
//! and distinct, so that enqueues of several keys wait for each other in one order.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use super::rows::{Columns, Noun};
use crate::{
    error::{Error, Meaning},
    job::Draft,
    key::{Enqueued, Existing, Fingerprint, Keyed, hold_is_over},
    state::State,
};

/// A row of the key table, with what its job says.
#[derive(Debug)]
pub struct Holding {
    pub key: String,
    pub fingerprint: Vec<u8>,
    pub hold: String,
    /// Its period is over.
    pub passed: bool,
    pub existing: Existing,
}

impl Noun for Holding {
    fn of(row: &impl Columns) -> sqlx::Result<Holding> {
        Ok(Holding {
            key: row.read("key")?,
            fingerprint: row.read("fingerprint")?,
            hold: row.read("hold")?,
            passed: row.read("passed")?,
            existing: Existing {
                id: row.read("id")?,
                state: row.read("state")?,
                outcome: row.read("outcome")?,
                result: row.read("result")?,
            },
        })
    }
}

/// What an enqueue answers. After a conflict its transaction, or the savepoint it began with, is rolled back.
pub type Put = Result<Vec<Enqueued>, Conflict>;

/// The same key, another request.
#[derive(Debug)]
pub struct Conflict {
    key: String,
    held: String,
    given: Fingerprint,
}

impl From<Conflict> for Error {
    fn from(conflict: Conflict) -> Error {
        Error::KeyConflict {
            key: conflict.key,
            held: conflict.held,
            given: conflict.given.to_string(),
            source: Meaning::Final,
        }
    }
}

/// What was found out about a key.
enum Answer {
    /// It is this enqueue's own; the number is what `Asking::won` was given.
    Won { first: usize, id: i64 },
    /// A job holds it.
    Held {
        fingerprint: Option<Fingerprint>,
        existing: Existing,
    },
}

/// An enqueue's keys on their way to an answer each.
pub struct Asking<'a> {
    drafts: &'a [Draft],
    /// Without an answer yet, sorted; the first draft of each key, by its number, stands for it.
    open: BTreeMap<&'a str, (usize, &'a Keyed)>,
    answers: HashMap<&'a str, Answer>,
}

/// How long a key is held, as it is stored.
pub fn period_us(keyed: &Keyed) -> Option<i64> {
    let period = keyed.hold.period()?;
    Some(i64::try_from(period.as_micros()).unwrap_or(i64::MAX))
}

/// Whether any of these drafts has a key.
pub fn any_keyed(drafts: &[Draft]) -> bool {
    drafts.iter().any(|d| d.key.is_some())
}

/// Whether inserting any of these drafts may have to wait for somebody's open transaction: whoever is about to take the same
/// key, or to begin the same group.
pub fn may_wait(drafts: &[Draft]) -> bool {
    drafts.iter().any(|d| d.key.is_some() || d.group.is_some())
}

impl<'a> Asking<'a> {
    pub fn new(drafts: &'a [Draft]) -> Asking<'a> {
        let mut open = BTreeMap::new();
        for (i, draft) in drafts.iter().enumerate() {
            if let Some(keyed) = draft.key.as_deref() {
                open.entry(keyed.key.as_str()).or_insert((i, keyed));
            }
        }
        Asking {
            drafts,
            open,
            answers: HashMap::new(),
        }
    }

    pub fn is_answered(&self) -> bool {
        self.open.is_empty()
    }

    /// The keys without an answer, sorted.
    pub fn open(&self) -> Vec<&'a Keyed> {
        self.open.values().map(|(_, keyed)| *keyed).collect()
    }

    /// The same in the order of the input, each with its place in the sorted order.
    #[cfg(feature = "postgres")]
    pub fn open_as_given(&self) -> Vec<(&'a Keyed, i32)> {
        let mut open: Vec<_> = self.open.values().zip(0..).collect();
        open.sort_unstable_by_key(|((first, _), _)| *first);
        open.into_iter().map(|((_, keyed), rank)| (*keyed, rank)).collect()
    }

    /// The key is this enqueue's own. The id is the job's where the backend reserves one, else that of the row before.
    pub fn won(&mut self, key: &str, id: i64) {
        if let Some((key, (first, _))) = self.open.remove_entry(key) {
            self.answers.insert(key, Answer::Won { first, id });
        }
    }

    /// What holds the open keys. Those whose hold is over are returned, sorted, with the id to take them over from; a
    /// key that was not found was removed meanwhile and stays open.
    pub fn met(&mut self, holdings: Vec<Holding>) -> Vec<(&'a Keyed, i64)> {
        let mut over = Vec::new();
        for holding in holdings {
            let Some((_, keyed)) = self.open.get(holding.key.as_str()).copied() else {
                continue;
            };
            if hold_is_over(&holding.hold, holding.passed, holding.existing.state) {
                over.push((keyed, holding.existing.id.into()));
                continue;
            }
            self.open.remove(keyed.key.as_str());
            let held = Answer::Held {
                fingerprint: Fingerprint::from_bytes(&holding.fingerprint),
                existing: holding.existing,
            };
            self.answers.insert(&keyed.key, held);
        }
        over.sort_unstable_by(|(a, _), (b, _)| a.key.cmp(&b.key));
        over
    }

    /// What to insert and what to say of each draft; or the first contradiction, after which nothing may be kept.
    pub fn decided(self) -> Result<Decided<'a>, Conflict> {
        let mut decided = Decided {
            drafts: self.drafts,
            new: Vec::new(),
            said: Vec::with_capacity(self.drafts.len()),
        };
        let mut places: HashMap<&str, usize> = HashMap::new();
        for (i, draft) in self.drafts.iter().enumerate() {
            let keyed = draft.key.as_deref();
            let said = match keyed.and_then(|k| Some((k, self.answers.get(k.key.as_str())?))) {
                Some((keyed, Answer::Held { fingerprint, existing })) => {
                    let what = || format!("job {}", existing.id);
                    same_request(keyed, *fingerprint, what)?;
                    Said::Existing(existing.clone())
                }
                Some((keyed, Answer::Won { first, .. })) if *first != i => {
                    let made = self.drafts[*first].key.as_deref().map(|k| k.fingerprint);
                    same_request(keyed, made, || format!("jobs[{first}] of the same enqueue"))?;
                    Said::Repeat(places.get(keyed.key.as_str()).copied().unwrap_or_default())
                }
                won => {
                    let id = match won {
                        Some((keyed, Answer::Won { id, .. })) => {
                            places.insert(&keyed.key, decided.new.len());
                            Some(*id)
                        }
                        _ => None,
                    };
                    decided.new.push((i, id));
                    Said::New(decided.new.len() - 1)
                }
            };
            decided.said.push(said);
        }
        Ok(decided)
    }
}

fn same_request(keyed: &Keyed, held: Option<Fingerprint>, what: impl Fn() -> String) -> Result<(), Conflict> {
    if held == Some(keyed.fingerprint) {
        return Ok(());
    }
    let held = held.map_or_else(|| "an unreadable fingerprint".to_owned(), |f| f.to_string());
    Err(Conflict {
        key: keyed.key.clone(),
        held: format!("{} with {held}", what()),
        given: keyed.fingerprint,
    })
}

/// What is said of one draft; the numbers are places among the new ones.
enum Said {
    New(usize),
    /// An earlier draft of the same enqueue has this key and made the job.
    Repeat(usize),
    Existing(Existing),
}

/// An enqueue whose keys all have their answer.
pub struct Decided<'a> {
    drafts: &'a [Draft],
    /// Which drafts to insert, in input order, with what `Asking::won` was given for those with a key.
    new: Vec<(usize, Option<i64>)>,
    said: Vec<Said>,
}

impl<'a> Decided<'a> {
    /// The drafts to insert.
    pub fn new_drafts(&self) -> Cow<'a, [Draft]> {
        if self.new.len() == self.drafts.len() {
            return Cow::Borrowed(self.drafts);
        }
        self.new.iter().map(|(i, _)| self.drafts[*i].clone()).collect()
    }

    /// Beside each of the new drafts, what `Asking::won` was given.
    pub fn won_ids(&self) -> Vec<Option<i64>> {
        self.new.iter().map(|(_, id)| *id).collect()
    }

    /// What to answer, given the ids of the new drafts.
    pub fn answer(self, ids: &[i64]) -> Vec<Enqueued> {
        let id = |place: usize| ids.get(place).copied().unwrap_or_default();
        let (new, drafts) = (self.new, self.drafts);
        let waits = |place: usize| new.get(place).is_some_and(|(i, _)| drafts[*i].wait.is_some());
        let said = self.said.into_iter().map(|said| match said {
            Said::New(place) => Enqueued::New(id(place).into()),
            Said::Repeat(place) => Enqueued::Existing(Existing {
                id: id(place).into(),
                state: Some(if waits(place) { State::Waiting } else { State::Ready }),
                outcome: None,
                result: None,
            }),
            Said::Existing(existing) => Enqueued::Existing(existing),
        });
        said.collect()
    }
}
