-- Claims due rows of an adopted table, earliest first, each under its own token.
-- Index: the table's index of unclaimed rows by due time, read in index order; its primary key; breaker_pkey.
-- It claims nothing while a breaker of the table is not closed.
-- only here: tables are adopted on PostgreSQL only.
with clock as materialized (
  select coalesce($4::timestamptz, clock_timestamp()) as now
), closed as materialized (
  select b.name from rowlock.breaker b where b.name = any ($3::text[]) and b.state = 'closed' order by b.name for share
), due as materialized (
  select t.{id} as id
  from {table} t
  where not t.{inactive} and t.{claimed_at} is null and t.{due} <= (select c.now from clock c)
    and (select count(*) from closed) = cardinality($3::text[])
    -- Skips the rows that the table refused. If rows are taken one by one, takes this row only.
    and not t.{id}::text = any ($5::text[]) and ($6::text is null or t.{id}::text = $6)
  order by {order}
  limit $1
  for update of t skip locked
)
update {table} t
set {claimed_at} = (select c.now from clock c), {claimed_by} = $2, {claim_token} = gen_random_uuid()
from due d
where t.{id} = d.id
returning
  t.*, t.{id}::text as "rowlock id", t.{claim_token} as "rowlock token", t.{attempts}::bigint as "rowlock attempts",
  t.{max_attempts}::bigint as "rowlock max attempts",
  -- Drivers cannot read times before year 1, such as -infinity. One such row must not fail the claim of all rows.
  greatest(t.{due}, timestamptz '0001-01-01 00:00:00+00') as "rowlock due", t.{claimed_at} as "rowlock claimed at"
