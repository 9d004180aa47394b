-- Removes the bodies and effects of old finished jobs, a bounded number per call.
-- Index: job_created; ready_id, lease_pkey, case_file_pkey, waiting_pkey, outcome_id, effect_id_name_key.
-- Such a job was enqueued before the given time and is in no place. It has no outcome since that time and no effect in
-- doubt.
with old as materialized (
  select j.id from rowlock.job j
  where j.created_at < $1
    and not exists (select from rowlock.ready r where r.id = j.id)
    and not exists (select from rowlock.lease l where l.id = j.id)
    and not exists (select from rowlock.case_file c where c.id = j.id)
    and not exists (select from rowlock.waiting w where w.id = j.id)
    and not exists (select from rowlock.outcome o where o.id = j.id and o.ended_at >= $1)
    and not exists (select from rowlock.effect e where e.id = j.id and e.state in ('open', 'uncertain'))
  limit $2
), gone as (
  delete from rowlock.job j using old o
  -- An operator may have re-run the job since it was read.
  where j.id = o.id and (j.reran_at is null or j.reran_at < $1)
  returning j.id
), effects as (
  delete from rowlock.effect e using gone g where e.id = g.id
)
select count(*) from gone
