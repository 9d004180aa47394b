-- Puts a case back with all its attempts, to where it may run or must wait, and notes who did it.
-- Index: rowlock_case_file by id, rowlock_job by id, rowlock_completion by name, rowlock_job_group by no, inside the trigger.
insert into rowlock_verb (verb, id, actor, now) values ('reopen', ?1, ?2, ?3)
