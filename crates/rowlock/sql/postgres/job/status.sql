-- Counts per queue and kind over the four places a job can be.
-- Index: ready_order, from lane to lane, and no further than 100,000 in each; one body per lane for its names. All inside rowlock.backlog.
select
  queue, kind, due, scheduled, waiting, leased, cases, more,
  (extract(epoch from coalesce($1::timestamptz, clock_timestamp()) - oldest_due_at) * 1000)::bigint as oldest_due_ms
from rowlock.backlog
order by queue, kind
