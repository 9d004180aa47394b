-- Renews one claim whose token still holds, after waiting for the row lock; else returns no row.
-- Index: the table's primary key.
-- only here: tables are adopted on PostgreSQL only.
with mine as materialized (
  -- Reads the clock after the lock is taken, not before.
  select t.{id} as id from {table} t where t.{id} = ($1::text)::{id_type} and t.{claim_token} = $2 for no key update of t
)
update {table} t set {claimed_at} = coalesce($3::timestamptz, clock_timestamp()) from mine m where t.{id} = m.id
returning 1
