-- Second half of resolving an unknown commit: what this attempt's outcome is, if it has one.
-- Index: outcome_id.
select outcome from rowlock.outcome where id = $1 and epoch = $2 and worker = $3
