-- Returns the outcome that this attempt wrote, if any: the second half of resolving an unknown commit.
-- Index: outcome_id.
-- The outcome "lost" is written by recovery, not by the attempt.
select outcome from rowlock.outcome where id = $1 and epoch = $2 and worker = $3 and outcome <> 'lost'
