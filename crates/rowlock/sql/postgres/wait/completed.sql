-- Moves waiting jobs whose name is completed to ready: the transactions that enqueued and completed were open at the same time, and neither saw the other.
-- Index: waiting_name, completion_pkey; writes ready_order, ready_id, inside rowlock.end_waits. Rows that somebody holds fall to the next round.
-- no twin: in sqlite writers follow each other, and the second one sees the first.
select unnest(rowlock.end_waits(array(
  select w.id
  from rowlock.waiting w join rowlock.completion c on c.name = w.name
  limit $1
  for update of w skip locked
), $2::timestamptz))
