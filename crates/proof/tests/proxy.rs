//! Every answer of the database that can be lost on the way, lost: a PostgreSQL behind a proxy that cuts connections
//! around the COMMIT, and the real worker on the other side of it.

#![allow(clippy::unwrap_used, reason = "a case that cannot go on has failed")]

#[path = "proxy/cuts.rs"]
mod cuts;
#[path = "proxy/late.rs"]
mod late;
#[path = "proxy/outages.rs"]
mod outages;
#[path = "proxy/site.rs"]
mod site;
#[path = "proxy/storm.rs"]
mod storm;
#[path = "proxy/wire.rs"]
mod wire;
#[path = "proxy/worker.rs"]
mod worker;
