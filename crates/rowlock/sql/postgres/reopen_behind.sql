-- Puts a case of a group back with all its attempts, to wait for its turn; the epoch goes on rising, so no old token fits again.
-- Index: case_file_pkey, job_pkey; writes waiting_pkey, waiting_group.
with opened as (
  delete from rowlock.case_file where id = $1
  returning id, epoch, attempts_max, queue_no, kind_no, priority, coalesce($3::timestamptz, clock_timestamp()) as now
), behind as (
  insert into rowlock.waiting (
    id, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_ends, since, group_no
  )
  select id, queue_no, kind_no, priority, now, epoch, 0, attempts_max, 'cancelled', now, $4 from opened
), noted as (
  insert into rowlock.audit (actor, verb, id) select $2, 'reopen', id from opened
)
select o.id, j.queue from opened o left join rowlock.job j on j.id = o.id
