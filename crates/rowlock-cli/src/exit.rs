//! The exit codes: one number for each result that a script may have to distinguish.

use std::process::ExitCode;

use rowlock::Error;

use crate::output::Advice;

/// An exit code. They are in `docs/operating.md`, and scripts rely on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done.
    #[default]
    Done = 0,
    /// Failed, or it is unknown whether it was done.
    Failed = 1,
    /// The command line or the config file is wrong, or `--yes` is missing, which makes it a dry run; nothing was done.
    /// clap ends with it too.
    Usage = 2,
    /// A check is not met.
    NotMet = 3,
    /// The thing that was named does not exist.
    NotFound = 4,
    /// The thing is in a state in which this is not possible.
    Conflict = 5,
}

impl Exit {
    pub(crate) fn of(error: &anyhow::Error) -> Exit {
        let advised = error.chain().find_map(|link| link.downcast_ref::<Advice>());
        if let Some(advice) = advised {
            return advice.exit();
        }
        let told = error.chain().find_map(|link| link.downcast_ref::<Error>());
        told.map_or(Exit::Failed, Exit::of_refusal)
    }

    /// The exit code for an error of the library.
    pub(crate) fn of_refusal(error: &Error) -> Exit {
        match error {
            Error::NotFound(_) => Exit::NotFound,
            Error::Conflict(_) | Error::KeyConflict { .. } => Exit::Conflict,
            _ => Exit::Failed,
        }
    }

    /// The more serious of two.
    pub(crate) fn worse(self, other: Exit) -> Exit {
        let rank = |exit| match exit {
            Exit::Done => 0,
            Exit::NotFound => 1,
            Exit::Conflict => 2,
            Exit::NotMet => 3,
            Exit::Usage => 4,
            Exit::Failed => 5,
        };
        if rank(other) > rank(self) { other } else { self }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_ends_the_worst_counts() {
        let worst = |ends: &[Exit]| ends.iter().fold(Exit::Done, |worst, end| worst.worse(*end));
        assert_eq!(worst(&[]), Exit::Done);
        assert_eq!(worst(&[Exit::NotFound, Exit::Done]), Exit::NotFound);
        assert_eq!(worst(&[Exit::Conflict, Exit::NotFound]), Exit::Conflict);
        assert_eq!(worst(&[Exit::Failed, Exit::Conflict, Exit::NotFound]), Exit::Failed);
    }
}
