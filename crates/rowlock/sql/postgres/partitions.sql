-- Makes the partitions of the coming days and ids.
-- Index: none.
select rowlock.make_partitions($1, $2)
