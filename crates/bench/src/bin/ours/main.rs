//! Our lanes, through the public API.
fn main() {}
