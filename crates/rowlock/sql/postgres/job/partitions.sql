-- Creates the partitions for the coming days and ids.
-- Index: none.
-- only here: SQLite has no partitions.
select rowlock.make_partitions($1, $2)
