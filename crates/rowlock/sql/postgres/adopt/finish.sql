-- Ends a claim whose work is done, only if the token still holds.
-- Index: the table's primary key.
-- The row becomes inactive, or it stays as its handler left it and is due again.
-- only here: tables are adopted on PostgreSQL only.
with done as (
  update {table} t
  set {claimed_at} = null, {claimed_by} = null, {claim_token} = null, {inactive} = t.{inactive} or not $3::boolean,
    {attempts} = case when $3 then 0 else t.{attempts} end, {last_error} = null, {last_error_at} = null
  where t.{id} = ($1::text)::{id_type} and t.{claim_token} = $2
    and ($4::text is null or current_setting('rowlock_tx.marker', true) = $4)
  returning 1
)
select
  exists (select from done) as applied,
  ($4::text is null or coalesce(current_setting('rowlock_tx.marker', true), '') = $4) as marked
