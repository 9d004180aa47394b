-- Puts waiting jobs whose limit has passed under leases of worker 0, to be ended like any other attempt.
-- Index: rowlock_waiting by id.
-- only here: PostgreSQL does so inside wait/over.sql.
insert into rowlock_lease (id, epoch, worker, attempt, attempts_max, queue_no, kind_no, alone, priority, claimed_at)
select w.id, w.epoch + 1, 0, w.attempt, w.attempts_max, w.queue_no, w.kind_no, 0, w.priority, w.since
from json_each(?1) v cross join rowlock_waiting w on w.id = v.value ->> 'id'
