-- Checks that a ledger entry has an end if it is held for a period, and only then.
-- Index: ledger_made, from the newest of each hold on.
with looked as materialized (
  (select key, hold, expires_at from rowlock.ledger where hold = 'policy' order by made_at desc limit $2)
  union all
  (select key, hold, expires_at from rowlock.ledger where hold = 'period' order by made_at desc limit $2)
  union all
  (select key, hold, expires_at from rowlock.ledger where hold = 'ever' order by made_at desc limit $2)
), broken as (
  select null::bigint as job, format('entry "%s" is held by %s, and its end says otherwise', key, hold) as what
  from looked where (hold = 'period') <> (expires_at is not null)
)
select
  (select count(*) from looked) as looked,
  not exists (select from looked group by hold having count(*) >= $2) as whole,
  (select count(*) from broken) as broken,
  (select json_agg(f)::text from (select job, what from broken order by job limit $1) f) as found
