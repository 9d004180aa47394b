//! A group: jobs that run one after the other, in the order they were enqueued, while other groups run concurrently.
//!
//! Only the head, the job whose turn it is, can be claimed; the others wait behind it. The turn passes on in the commit
//! that ends the head.

use crate::{
    error::Result,
    job::{check_name, number},
};

/// The group a job belongs to, by its name, such as `account:42`. At most one job of a group is under way in the whole
/// fleet; a head that fails holds its group while it is tried again.
///
/// ```
/// use rowlock::Group;
///
/// let goes_on: Group = "account:42".into();
/// let stops = Group::new("account:42").stop_when_retired();
/// assert_ne!(goes_on, stops);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub(crate) name: String,
    pub(crate) stops: bool,
}

impl Group {
    /// The group of this name. When the job is retired, the group goes on with the next.
    pub fn new(name: impl Into<String>) -> Group {
        Group {
            name: name.into(),
            stops: false,
        }
    }

    /// When the job is retired, the group stops: nothing behind it runs until the case is reopened and done, or
    /// removed.
    #[must_use]
    pub fn stop_when_retired(mut self) -> Group {
        self.stops = true;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_name("group", &self.name)
    }

    /// The number that the group is stored under.
    pub(crate) fn no(&self) -> i64 {
        group_no(&self.name)
    }
}

impl From<&str> for Group {
    fn from(name: &str) -> Group {
        Group::new(name)
    }
}

impl From<String> for Group {
    fn from(name: String) -> Group {
        Group::new(name)
    }
}

/// The number a group's name is stored under. Two names with one number would merely wait for each other.
pub(crate) fn group_no(name: &str) -> i64 {
    number(name)
}

/// What an attempt must know of its job's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub no: i64,
    /// When the job is retired.
    pub stops: bool,
}

impl Member {
    /// From the job's body; `None` when the job is in no group.
    pub fn of(no: Option<i64>, stops: Option<bool>) -> Option<Member> {
        let stops = stops.unwrap_or(false);
        no.map(|no| Member { no, stops })
    }
}
