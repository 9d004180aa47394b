//! What this machine has for a run, and what is installed or started for it.

pub(crate) mod apt;
pub(crate) mod emulator;
pub(crate) mod extras;
pub(crate) mod packages;
pub(crate) mod postgres;
pub(crate) mod program;
