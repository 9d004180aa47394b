-- Sets a counter back to 0 that this transaction created by raising it, although the caller had read it before.
-- Index: guard_version_pkey.
-- only here: in SQLite, guard/raise.sql checks whether the counter exists; that check conflicts with no other
-- transaction.
update rowlock.guard_version set version = 0 where key = $1
