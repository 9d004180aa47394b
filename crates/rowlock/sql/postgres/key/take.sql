-- Gives keys whose hold is over to new jobs, only if the job that was read still has the key.
-- Index: job_key_pkey.
-- It waits for other transactions in sorted order.
with input as materialized (
  select u.*, coalesce($6::timestamptz, clock_timestamp()) as now
  from unnest($1::text[], $2::bytea[], $3::text[], $4::bigint[], $5::bigint[])
    with ordinality as u (key, fingerprint, hold, period_us, old_id, rank)
), locked as materialized (
  select k.key
  from rowlock.job_key k join input i on i.key = k.key and i.old_id = k.id
  order by i.rank
  for update of k
)
update rowlock.job_key k
set
  id = nextval('rowlock.job_id'), fingerprint = i.fingerprint, hold = i.hold,
  expires_at = i.now + i.period_us * interval '1 microsecond', made_at = i.now
from input i join locked l on l.key = i.key
where k.key = i.key and k.id = i.old_id
returning k.key, k.id
