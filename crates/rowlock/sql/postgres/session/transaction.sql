-- Returns the full number of the latest transaction with the given low 32 bits, and whether it committed.
-- Index: none.
-- only here: SQLite connections live in the process that would ask.
with
  latest as (
    select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as next
  ),
  meant as (
    select (l.next & ~4294967295) + $1 - case when $1 > (l.next & 4294967295) then 4294967296 else 0 end as no
    from latest l
  )
select m.no, coalesce(pg_xact_status(m.no::text::xid8) = 'committed', false) as committed
from meant m
where m.no > 0
