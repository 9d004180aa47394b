-- Second half of resolving an unknown commit: the outcome this attempt wrote, if it did; "lost" is recovery's word, not its own.
-- Index: outcome_id.
select outcome from rowlock.outcome where id = $1 and epoch = $2 and worker = $3 and outcome <> 'lost'
