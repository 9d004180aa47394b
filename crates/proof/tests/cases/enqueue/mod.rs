//! Putting jobs in: alone, as a link of a chain, and by name.

mod chain;
mod commit;
mod named;

use super::*;
