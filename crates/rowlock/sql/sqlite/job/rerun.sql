-- Runs a finished job once more and records who did it.
-- Index: rowlock_job by id, rowlock_outcome_id, and the indexes of case/reopen.sql, inside the trigger.
insert into rowlock_verb (verb, id, reason, actor, now, queue_no, kind_no) values ('rerun', ?1, ?2, ?3, ?4, ?5, ?6)
