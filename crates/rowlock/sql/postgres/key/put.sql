-- Takes the keys that are free, each for the id of a job that is about to be enqueued.
-- Index: job_key_pkey.
-- It waits, in sorted order, for transactions that are about to take or change a key.
with input as materialized (
  select nextval('rowlock.job_id') as id, u.*, coalesce($6::timestamptz, clock_timestamp()) as now
  from unnest($1::text[], $2::bytea[], $3::text[], $4::bigint[], $5::int[])
    as u (key, fingerprint, hold, period_us, rank)
)
insert into rowlock.job_key (key, id, fingerprint, hold, expires_at, made_at)
select key, id, fingerprint, hold, now + period_us * interval '1 microsecond', now
from input order by rank
on conflict (key) do nothing
returning key, id
