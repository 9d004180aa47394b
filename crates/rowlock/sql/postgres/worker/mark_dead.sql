-- Declares dead every worker whose last beat is older than its lease; says whether anybody is dead, by whomever. One whose row somebody holds, as a beat that is not committed does, falls to the next round.
-- Index: none; one row per process.
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
