-- Removes those of the given enqueue keys whose hold is over.
-- Index: job_key_id; lease_pkey, ready_id, case_file_pkey, waiting_pkey. Skips a key that another transaction is about
-- to take.
-- It keeps a key while its job is in any place, and a key that another job has taken since the key was read.
with input as materialized (
  select u.key, u.id from unnest($1::text[], $2::bigint[]) as u (key, id)
), old as materialized (
  select k.key, k.id
  from rowlock.job_key k join input i on i.key = k.key and i.id = k.id
  where (k.hold = 'open' or (k.hold = 'period' and k.expires_at <= $3) or (k.hold = 'policy' and k.made_at < $4))
    and not exists (select from rowlock.lease l where l.id = i.id)
    and not exists (select from rowlock.ready r where r.id = i.id)
    and not exists (select from rowlock.case_file c where c.id = i.id)
    and not exists (select from rowlock.waiting w where w.id = i.id)
  for update of k skip locked
)
delete from rowlock.job_key k using old o where k.key = o.key and k.id = o.id
