//! Every answer of the database that can be lost on the way, lost: a PostgreSQL behind a proxy that cuts connections
//! around the COMMIT, and the real worker on the other side of it.

mod cuts;
mod late;
mod outages;
mod site;
mod storm;
mod wire;
mod worker;
