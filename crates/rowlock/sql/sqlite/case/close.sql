-- Closes a case for good.
-- Index: rowlock_case_file by id, rowlock_job by id, inside the trigger.
insert into rowlock_verb (verb, id, reason, actor, now) values ('close', ?1, ?2, ?3, ?4)
