-- Returns the last row number of the next outcome rows, their count, and how many ended before the given time.
-- Index: rowlock_outcome by row number, which rises with time; the scan stops at its bound.
-- only here: PostgreSQL drops whole partitions of the log.
select coalesce(max(rowid), 0) as last, count(*) as seen, coalesce(sum(ended_at < ?1), 0) as old
from (select rowid, ended_at from rowlock_outcome where rowid > ?2 order by rowid limit +?3)
