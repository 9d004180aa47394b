-- What this attempt's outcome is, if it has one.
-- Index: rowlock_outcome_id.
select outcome from rowlock_outcome where id = ?1 and epoch = ?2 and worker = ?3
