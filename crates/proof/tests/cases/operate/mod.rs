//! What people do to jobs and cases.

mod audited;
mod case_errors;
mod rerun;
mod verbs;

use super::*;
