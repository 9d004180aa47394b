-- The outcome this attempt wrote, if it did; "lost" is recovery's word, not its own.
-- Index: rowlock_outcome_id.
select outcome from rowlock_outcome where id = ?1 and epoch = ?2 and worker = ?3 and outcome <> 'lost'
