-- Declares every worker dead whose last heartbeat is older than its lease; says whether any worker is dead.
-- Index: none; one row per process.
-- A worker that was declared dead before counts too. A worker whose row is locked, as by a heartbeat that is not
-- committed, is left to the next round.
with marked as (
  update rowlock.worker set dead = true
  where id in (
    select w.id from rowlock.worker w
    where not w.dead and w.beat < coalesce($1::timestamptz, clock_timestamp()) - w.lease_ms * interval '1 millisecond'
    for no key update skip locked
  )
  returning id
)
select m.id, exists (select from marked) or exists (select from rowlock.worker where dead) as any_dead
from (select) one left join marked m on true
