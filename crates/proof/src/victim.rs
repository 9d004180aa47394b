//! Victims.
