-- Makes jobs that stand untriggered due now, in ready or in waiting, where the uid is theirs; says which, and how often each was claimed before.
-- Index: job_pkey, ready_id, waiting_pkey.
with clock as materialized (
  select coalesce($1::timestamptz, clock_timestamp()) as now
), asked as materialized (
  select distinct j.id
  from unnest($2::bigint[], $3::uuid[]) as a (id, uid)
  join rowlock.job j on j.id = a.id and j.uid = a.uid
), in_ready as materialized (
  select r.id from rowlock.ready r where r.id = any(array(select id from asked)) and r.due_at = $4 order by r.id for update
), in_waiting as materialized (
  select w.id from rowlock.waiting w where w.id = any(array(select id from asked)) and w.due_at = $4 order by w.id for update
), due as (
  update rowlock.ready r set due_at = (select now from clock) from in_ready i where r.id = i.id returning r.id, r.epoch
), due_later as (
  update rowlock.waiting w set due_at = (select now from clock) from in_waiting i where w.id = i.id returning w.id, w.epoch
)
select id, epoch from due union all select id, epoch from due_later
