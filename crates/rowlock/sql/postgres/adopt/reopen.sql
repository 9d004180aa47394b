-- Puts a retired row back, due now and with all its attempts, only if it has not changed since it was retired.
-- Index: the table's primary key.
-- only here: tables are adopted on PostgreSQL only.
update {table} t
set {inactive} = false, {attempts} = 0, {due} = coalesce($3::timestamptz, clock_timestamp())
where t.{id} = ($1::text)::{id_type} and t.{inactive} and t.{claim_token} is null and t.{last_error_at} = $2::timestamptz
returning 1
