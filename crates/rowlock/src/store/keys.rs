//! The keys of one enqueue: which drafts are new, which name an existing job, and which contradict one.
//!
//! Each backend has its statements; this file decides what follows from their answers. Keys are requested sorted and
//! distinct, so that concurrent enqueues of several keys wait for each other in one order.

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

/// A row of the key table, with data of its job.
#[derive(Debug)]
pub struct Holding {
    pub key: String,
    pub fingerprint: Vec<u8>,
    pub hold: String,
    /// The period of the key is over.
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

/// The answer of an enqueue. After a conflict, its transaction is rolled back, or the savepoint that it began with.
pub type Put = Result<Vec<Enqueued>, Conflict>;

/// The same key with a different request.
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
    /// This enqueue took the key; the number is what `Asking::won` was given.
    Won { first: usize, id: i64 },
    /// A job holds the key.
    Held {
        fingerprint: Option<Fingerprint>,
        existing: Existing,
    },
}

/// The keys of an enqueue while their answers are looked up.
pub struct Asking<'a> {
    drafts: &'a [Draft],
    /// The keys without an answer yet, sorted, each with the number of its first draft.
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

/// Whether inserting any of these drafts may wait for another open transaction: one that takes the same key, or begins
/// the same group.
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

    /// The keys without an answer in input order, each with its position in the sorted order.
    #[cfg(feature = "postgres")]
    pub fn open_as_given(&self) -> Vec<(&'a Keyed, i32)> {
        let mut open: Vec<_> = self.open.values().zip(0..).collect();
        open.sort_unstable_by_key(|((first, _), _)| *first);
        open.into_iter().map(|((_, keyed), rank)| (*keyed, rank)).collect()
    }

    /// This enqueue took the key. `id` is the job's id where the backend reserves one, else the id in the key's row
    /// before.
    pub fn won(&mut self, key: &str, id: i64) {
        if let Some((key, (first, _))) = self.open.remove_entry(key) {
            self.answers.insert(key, Answer::Won { first, id });
        }
    }

    /// Records what holds the open keys. Keys whose hold is over are returned, sorted, with the id to take them over
    /// from. A key that was not found was removed meanwhile and stays open.
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

    /// What to insert and what to answer for each draft; or the first contradiction, after which nothing may be kept.
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

/// The answer for one draft; the numbers are positions among the new drafts.
enum Said {
    New(usize),
    /// An earlier draft of the same enqueue has this key and created the job.
    Repeat(usize),
    Existing(Existing),
}

/// An enqueue whose keys all have their answer.
pub struct Decided<'a> {
    drafts: &'a [Draft],
    /// Which drafts to insert, in input order, with what `Asking::won` was given for drafts with a key.
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

    /// For each new draft, what `Asking::won` was given.
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
