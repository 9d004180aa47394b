//! The key of an outside call: the same on every attempt, by construction.

use std::fmt;

use uuid::Uuid;

/// The name of one effect of one job for the system outside; hand it over as its idempotency key.
///
/// It derives from what was fixed when the job was enqueued and from the effect's name, and from nothing else: not
/// from the attempt, the epoch, the time or a number that a failover could reissue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EffectKey(String);

impl EffectKey {
    pub(crate) fn new(uid: Uuid, name: &str) -> EffectKey {
        EffectKey(format!("{uid}:{name}"))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<EffectKey> for String {
    fn from(key: EffectKey) -> String {
        key.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_depends_on_the_job_and_the_name_alone() {
        let (a, b) = (Uuid::now_v7(), Uuid::now_v7());
        assert_eq!(EffectKey::new(a, "charge"), EffectKey::new(a, "charge"));
        assert_ne!(EffectKey::new(a, "charge"), EffectKey::new(b, "charge"));
        assert_ne!(EffectKey::new(a, "charge"), EffectKey::new(a, "refund"));
    }
}
