-- Puts a case back to ready with all its attempts; the epoch goes on rising, so no old token fits again.
-- Index: case_file_pkey; writes ready_order, ready_id.
with opened as (
  delete from rowlock.case_file where id = $1
  returning id, epoch, attempts_max, queue_no, kind_no, priority
), place as (
  insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
  select queue_no, kind_no, false, priority, coalesce($3::timestamptz, clock_timestamp()), id, epoch, 0, attempts_max from opened
), noted as (
  insert into rowlock.audit (actor, verb, id) select $2, 'reopen', id from opened
)
select o.id, j.queue from opened o left join rowlock.job j on j.id = o.id
