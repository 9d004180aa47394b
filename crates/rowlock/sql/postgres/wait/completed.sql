-- Moves waiting jobs whose name is completed to ready: the transactions that enqueued and completed were open at the same time, and neither saw the other.
-- Index: waiting_name, completion_pkey; writes ready_order, ready_id. Rows that somebody holds fall to the next round.
-- no twin: in sqlite writers follow each other, and the second one sees the first.
with taken as materialized (
  select w.id
  from rowlock.waiting w join rowlock.completion c on c.name = w.name
  limit $1
  for update of w skip locked
), moved as (
  delete from rowlock.waiting w using taken t where w.id = t.id
  returning
    w.id, w.queue_no, w.kind_no, w.priority, greatest(w.due_at, coalesce($2::timestamptz, clock_timestamp())) as due_at,
    w.epoch, w.attempt, w.attempts_max
), place as (
  insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
  select queue_no, kind_no, false, priority, due_at, id, epoch, attempt, attempts_max from moved
)
select queue_no from moved
