-- Moves waiting jobs whose name is completed to ready.
-- Index: waiting_name, completion_pkey; writes ready_order, ready_id, inside rowlock.end_waits. Locked rows are left to
-- the next round.
-- The transactions that enqueued the job and completed the name were open at the same time, and neither saw the other.
-- only here: SQLite has one writer at a time, so the second writer sees what the first one wrote.
select unnest(rowlock.end_waits(array(
  select w.id
  from rowlock.waiting w join rowlock.completion c on c.name = w.name
  limit $1
  for update of w skip locked
), $2::timestamptz))
