-- Counts per queue and kind over the four places a job can be.
-- Index: rowlock_ready_order, from lane to lane, and no further than 100,000 in each; one body per lane for its names. All inside rowlock_backlog.
select
  queue, kind, due, scheduled, waiting, leased, cases, more, (?1 - oldest_due_at) / 1000 as oldest_due_ms
from rowlock_backlog
order by queue, kind
