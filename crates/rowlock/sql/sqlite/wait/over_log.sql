-- Logs that waits ended by their limit. No attempt was made; the row names no worker.
-- Index: rowlock_waiting by id; writes rowlock_outcome_id. The wait itself goes last (wait/over_gone.sql): the statement between reads it.
-- no twin: postgresql logs it inside wait/over.sql.
insert into rowlock_outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error)
select w.id, w.epoch + 1, 0, w.attempt, w.limit_ends, w.since, ?2, o.value ->> 'reason'
from json_each(?1) o cross join rowlock_waiting w on w.id = o.value ->> 'id'
