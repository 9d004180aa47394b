-- Creates the partitions for the coming days and ids.
-- Index: none.
-- no twin: SQLite has no partitions.
select rowlock.make_partitions($1, $2)
