-- Lists a job's ended attempts, oldest first.
-- Index: outcome_id.
select epoch, attempt, worker, outcome, started_at, ended_at, error, result::text as result
from rowlock.outcome where id = $1 order by epoch
