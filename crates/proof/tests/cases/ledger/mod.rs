//! One committed effect per key: `once`, and requests over HTTP.

mod idempotency;
mod once;
mod once_mark;

use super::*;
