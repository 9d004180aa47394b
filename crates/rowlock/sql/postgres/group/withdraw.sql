-- Takes the heads of paused groups out of ready, back behind nobody; one that is leased goes on.
-- Index: job_group_paused, ready_id; writes waiting_pkey, waiting_group. What somebody holds falls to the next round.
with due as materialized (
  select g.no, r.id
  from rowlock.job_group g join rowlock.ready r on r.id = g.head
  where g.paused
  limit $1
  for no key update of g skip locked
  for update of r skip locked
), gone as (
  delete from rowlock.ready r using due d where r.id = any (array[d.id])
  returning d.no, r.id, r.queue_no, r.kind_no, r.alone, r.priority, r.due_at, r.epoch, r.attempt, r.attempts_max
), behind as (
  insert into rowlock.waiting (
    id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max, limit_ends, since, group_no
  )
  select
    id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max, 'cancelled',
    coalesce($2::timestamptz, clock_timestamp()), no
  from gone
)
update rowlock.job_group g set head = null from gone d where g.no = any (array[d.no])
