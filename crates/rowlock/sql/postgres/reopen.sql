-- Puts a case back to ready with all its attempts, or to waiting while the name it waits for is not completed; the epoch goes on rising, so no old token fits again.
-- Index: case_file_pkey, job_pkey, completion_pkey; writes ready_order, ready_id, waiting_pkey, waiting_name.
with opened as (
  delete from rowlock.case_file where id = $1
  returning id, epoch, attempts_max, queue_no, kind_no, priority, coalesce($3::timestamptz, clock_timestamp()) as now
), body as materialized (
  select
    o.*, j.queue, j.waits_for, j.expires_at,
    j.waits_for is not null and not exists (select from rowlock.completion c where c.name = j.waits_for) as waits
  from opened o left join rowlock.job j on j.id = o.id
), place as (
  insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
  select queue_no, kind_no, false, priority, now, id, epoch, 0, attempts_max from body where not waits
), wait as (
  insert into rowlock.waiting (
    id, name, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_at, limit_ends, since
  )
  select id, waits_for, queue_no, kind_no, priority, now, epoch, 0, attempts_max, expires_at, 'cancelled', now
  from body where waits
), noted as (
  insert into rowlock.audit (actor, verb, id) select $2, 'reopen', id from opened
)
select id, queue from body
