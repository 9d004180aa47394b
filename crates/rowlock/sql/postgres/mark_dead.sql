-- Declares dead every worker whose last beat is older than its lease; says whether anybody is dead, by whomever.
-- Index: none; one row per process.
with marked as (
  update rowlock.worker set dead = true
  where not dead and beat < coalesce($1::timestamptz, clock_timestamp()) - lease_ms * interval '1 millisecond'
  returning id
)
select m.id, exists (select from marked) or exists (select from rowlock.worker where dead) as any_dead
from (select) one left join marked m on true
