-- Returns the outcome that this attempt wrote, if any; "lost" is written by recovery, not by the attempt.
-- Index: rowlock_outcome_id.
select outcome from rowlock_outcome where id = ?1 and epoch = ?2 and worker = ?3 and outcome <> 'lost'
