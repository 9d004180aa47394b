-- Ends claims that were not renewed for the length of the lease.
-- Index: the table's index of claimed rows; its primary key.
-- Each ended claim counts as an attempt and moves the due time by the backoff. It retires the row when no attempt is
-- left.
-- only here: tables are adopted on PostgreSQL only.
with clock as materialized (
  select coalesce($5::timestamptz, clock_timestamp()) as now
), stale as materialized (
  -- No interval can be added to -infinity. One such row must not fail the recovery of all rows.
  select t.{id} as id, t.{claimed_by} as who, extract(epoch from c.now - greatest(t.{claimed_at}, timestamptz '0001-01-01 00:00:00+00')) as silent_s
  from clock c cross join {table} t
  where not t.{inactive} and t.{claimed_at} < (select k.now - $1::bigint * interval '1 microsecond' from clock k)
    -- Skips the rows that the table refused. If rows are taken one by one, takes this row only.
    and not t.{id}::text = any ($6::text[]) and ($7::text is null or t.{id}::text = $7)
  order by t.{claimed_at}
  limit $2
  for update of t skip locked
)
update {table} t
set {claimed_at} = null, {claimed_by} = null, {claim_token} = null,
  {attempts} = case when t.{attempts} < 2147483647 then t.{attempts} + 1 else t.{attempts} end,
  {inactive} = t.{attempts}::bigint + 1 >= t.{max_attempts},
  {due} = case
    when t.{attempts}::bigint + 1 >= t.{max_attempts} then t.{due}
    else greatest(t.{due}, c.now + interval '1 microsecond'
      * least(least($3::float8 * power(2::float8, least(greatest(t.{attempts}, 0), 39)), $4::float8) * (0.75 + 0.5 * random()), $4::float8))
  end,
  {last_error} = format('worker lost: %s had the row and was silent for %s s', coalesce(s.who, 'nobody'), round(s.silent_s)),
  {last_error_at} = c.now
from stale s cross join clock c
where t.{id} = s.id
returning
  t.{id}::text as id, t.{inactive} as retired, t.{last_error} as error, t.{last_error_at} as at,
  (s.silent_s * 1000000)::bigint as silent_us
