-- Resumes a paused queue, kind or group and records who did it.
-- Index: rowlock_setting by name, rowlock_job_group by no, rowlock_waiting_group, inside the trigger.
insert into rowlock_verb (verb, target, id, actor, now) values ('resume', ?1, ?2, ?3, ?4)
