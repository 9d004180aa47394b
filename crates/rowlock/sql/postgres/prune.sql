-- Removes the bodies of jobs that were enqueued before the given time and are in no place any more, a bounded number at a time.
-- Index: job_pkey, from the oldest id; ready_id, lease_pkey, case_file_pkey.
with old as materialized (
  select j.id from rowlock.job j
  where j.id in (select id from rowlock.job where created_at < $1 order by id limit $2)
    and not exists (select from rowlock.ready r where r.id = j.id)
    and not exists (select from rowlock.lease l where l.id = j.id)
    and not exists (select from rowlock.case_file c where c.id = j.id)
)
delete from rowlock.job where id in (select id from old)
