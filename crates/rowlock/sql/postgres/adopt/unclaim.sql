-- Gives a claimed row back, only if the token still holds: to run later, or retired.
-- Index: the table's primary key.
-- If the row runs later, the attempt may be counted or not.
-- only here: tables are adopted on PostgreSQL only.
with clock as materialized (
  select coalesce($7::timestamptz, clock_timestamp()) as now
), back as (
  update {table} t
  set {claimed_at} = null, {claimed_by} = null, {claim_token} = null,
    {attempts} = case when $3::boolean and t.{attempts} < 2147483647 then t.{attempts} + 1 else t.{attempts} end,
    {inactive} = t.{inactive} or $4::boolean,
    {due} = case when $4 then t.{due} else greatest(t.{due}, c.now + $5::bigint * interval '1 microsecond') end,
    {last_error} = coalesce($6::text, t.{last_error}),
    {last_error_at} = case when $6 is null then t.{last_error_at} else c.now end
  from clock c
  where t.{id} = ($1::text)::{id_type} and t.{claim_token} = $2
    and ($8::text is null or current_setting('rowlock_tx.marker', true) = $8)
  returning t.{last_error_at} as at
)
select
  exists (select from back) as applied, b.at, ($8::text is null or coalesce(current_setting('rowlock_tx.marker', true), '') = $8) as marked
from (select 1) one left join back b on true
