-- Assigns ids to jobs that are about to be enqueued, and keeps their groups until the transaction ends.
-- Index: job_group_pkey, in sorted order. It neither waits for transactions that pass a turn on or take one over, nor
-- blocks them.
-- Ids reserved for keys are used as given. It returns which groups have a row, and which of those are vacant.
-- only here: SQLite has one writer at a time.
with shared as materialized (
  select g.no, g.vacant and not g.paused as vacant
  from rowlock.job_group g
  where g.no = any ($1::bigint[])
  order by g.no
  for key share
), input as materialized (
  select coalesce(u.id, nextval('rowlock.job_id')) as id, u.no, u.ord
  from unnest($1::bigint[], $2::bigint[]) with ordinality as u (no, id, ord)
)
select i.id, s.no is not null as known, coalesce(s.vacant, false) as vacant
from input i left join shared s on s.no = i.no
order by i.ord
