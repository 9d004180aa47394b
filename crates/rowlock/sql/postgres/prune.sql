-- Removes the bodies of jobs that were enqueued before the given time and are in no place any more and have no outcome since, a bounded number at a time.
-- Index: job_created; ready_id, lease_pkey, case_file_pkey, waiting_pkey, outcome_id.
with old as materialized (
  select j.id from rowlock.job j
  where j.created_at < $1
    and not exists (select from rowlock.ready r where r.id = j.id)
    and not exists (select from rowlock.lease l where l.id = j.id)
    and not exists (select from rowlock.case_file c where c.id = j.id)
    and not exists (select from rowlock.waiting w where w.id = j.id)
    and not exists (select from rowlock.outcome o where o.id = j.id and o.ended_at >= $1)
  limit $2
)
delete from rowlock.job where id in (select id from old)
