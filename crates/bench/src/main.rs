//! The benchmark: our lanes, the ceilings and the peers, interleaved in one run.
fn main() {}
