//! Every race that the protocol names, forced: two or three sessions on a real PostgreSQL, the product's own statements,
//! and a test that decides who goes next. That a step waits is read from the server, never guessed from the time.

mod steps;

mod races {
    mod claim;
    mod commit;
    mod library;
    mod partitions;
    mod recover;
    mod settle;
}
