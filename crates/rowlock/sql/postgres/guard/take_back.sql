-- Takes back the raise of a counter that this transaction began anew, because it was not there although it had been seen.
-- Index: guard_version_pkey.
-- no twin: SQLite asks in guard/raise.sql whether it is there; that is no conflict with anybody.
update rowlock.guard_version set version = 0 where key = $1
