-- Makes untriggered jobs in ready or waiting due now, if the given uid is theirs.
-- Index: job_pkey, ready_id, waiting_pkey.
-- It returns which jobs, and how often each was claimed before.
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
), out_of_ready as (
  delete from rowlock.ready r using in_ready i where r.id = i.id
  returning r.queue_no, r.kind_no, r.alone, r.priority, r.id, r.epoch, r.attempt, r.attempts_max
), out_of_waiting as (
  delete from rowlock.waiting w using in_waiting i where w.id = i.id
  returning
    w.id, w.name, w.queue_no, w.kind_no, w.priority, w.epoch, w.attempt, w.attempts_max, w.limit_at, w.limit_ends, w.since,
    w.group_no, w.alone
), due as (
  -- Deletes and inserts the row, because no role may update a due time.
  insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
  select queue_no, kind_no, alone, priority, (select now from clock), id, epoch, attempt, attempts_max from out_of_ready
  returning id, epoch
), due_later as (
  insert into rowlock.waiting (
    id, name, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_at, limit_ends, since, group_no, alone
  )
  select
    id, name, queue_no, kind_no, priority, (select now from clock), epoch, attempt, attempts_max, limit_at, limit_ends, since,
    group_no, alone
  from out_of_waiting
  returning id, epoch
)
select id, epoch from due union all select id, epoch from due_later
