-- The next rows of the outcome log: the number of the last one, how many there are, and how many ended before the given time.
-- Index: rowlock_outcome by row number, which rises with time; the walk never looks further than its bound.
-- no twin: postgresql drops whole partitions of the log.
select coalesce(max(rowid), 0) as last, count(*) as seen, coalesce(sum(ended_at < ?1), 0) as old
from (select rowid, ended_at from rowlock_outcome where rowid > ?2 order by rowid limit +?3)
