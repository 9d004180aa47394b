//! Jobs that wait: for a name, or for a hint from outside.

mod complete;
mod trigger;

use super::*;
