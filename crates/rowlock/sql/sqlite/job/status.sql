-- Counts jobs per queue and kind in each of the four places.
-- Index: rowlock_ready_order, from range to range, at most 100,000 rows in each; one body per range for its names. All
-- inside rowlock_backlog.
select
  queue, kind, due, scheduled, waiting, leased, cases, more, (?1 - oldest_due_at) / 1000 as oldest_due_ms
from rowlock_backlog
order by queue, kind
