-- Claims due rows of an adopted table, earliest first, each under a token of its own; nothing behind a breaker that is not closed.
-- Index: the table's own of rows that nobody has, by due time, walked in its own order; its primary key; breaker_pkey.
-- no twin: tables are adopted on PostgreSQL only.
with clock as materialized (
  select coalesce($4::timestamptz, clock_timestamp()) as now
), closed as materialized (
  select b.name from rowlock.breaker b where b.name = any ($3::text[]) and b.state = 'closed' order by b.name for share
), due as materialized (
  select t.{id} as id
  from {table} t
  where not t.{inactive} and t.{claimed_at} is null and t.{due} <= (select c.now from clock c)
    and (select count(*) from closed) = cardinality($3::text[])
    -- Without those that the table refused, and where rows are taken one by one, this one alone.
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
  -- Before the first year there are times that cannot be read, -infinity among them; one such row must not fail the claim of all.
  greatest(t.{due}, timestamptz '0001-01-01 00:00:00+00') as "rowlock due", t.{claimed_at} as "rowlock claimed at"
