-- Gives ids to jobs to come, those reserved for keys as given, and keeps their groups from being removed until the transaction ends; says which groups have a row, and which of those are vacant.
-- Index: job_group_pkey, in sorted order. Whoever passes a turn on or takes one over is neither waited for nor kept waiting.
-- no twin: sqlite has one writer at a time.
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
