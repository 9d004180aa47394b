-- Makes the partitions of the coming days and ids.
-- Index: none.
-- no twin: sqlite has no partitions.
select rowlock.make_partitions($1, $2)
