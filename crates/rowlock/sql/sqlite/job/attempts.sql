-- Lists a job's ended attempts, oldest first.
-- Index: rowlock_outcome_id.
select epoch, attempt, worker, outcome, started_at, ended_at, error, result
from rowlock_outcome where id = ?1 order by epoch
