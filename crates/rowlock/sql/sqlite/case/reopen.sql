-- Reopens a case with all its attempts, to ready or waiting, and records who did it.
-- Index: rowlock_case_file by id, rowlock_job by id, rowlock_completion by name, rowlock_job_group by no, inside the
-- trigger.
insert into rowlock_verb (verb, id, actor, now) values ('reopen', ?1, ?2, ?3)
