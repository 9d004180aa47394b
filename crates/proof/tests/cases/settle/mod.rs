//! Ending an attempt: where it leads, and only under its token.

mod commit;
pub(crate) mod state;
pub(crate) mod token;

use super::*;
