-- Counts jobs per queue and kind in each of the four places.
-- Index: ready_order, from range to range, at most 100,000 rows in each; one body per range for its names. All inside
-- rowlock.backlog.
select
  queue, kind, due, scheduled, waiting, leased, cases, more,
  (extract(epoch from coalesce($1::timestamptz, clock_timestamp()) - oldest_due_at) * 1000)::bigint as oldest_due_ms
from rowlock.backlog
order by queue, kind
