-- Ends a finished claim by deleting its row, only if the token still holds.
-- Index: the table's primary key.
-- only here: tables are adopted on PostgreSQL only.
with done as (
  delete from {table} t
  where t.{id} = ($1::text)::{id_type} and t.{claim_token} = $2
    and ($3::text is null or current_setting('rowlock_tx.marker', true) = $3)
  returning 1
)
select
  exists (select from done) as applied,
  ($3::text is null or coalesce(current_setting('rowlock_tx.marker', true), '') = $3) as marked
