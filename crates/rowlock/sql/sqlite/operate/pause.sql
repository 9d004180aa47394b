-- Pauses a queue, kind or group and records who did it; workers check for pauses twice a second.
-- Index: rowlock_setting by name, rowlock_job_group by no, inside the trigger.
insert into rowlock_verb (verb, target, id, actor, now) values ('pause', ?1, ?2, ?3, ?4)
