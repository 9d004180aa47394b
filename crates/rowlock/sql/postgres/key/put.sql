-- Takes the keys that nobody holds, each for the id of a job to come; waits, in sorted order, for whoever is about to take or change one.
-- Index: job_key_pkey.
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
