-- Cancels a job that is not finished, and records it in the audit.
-- Index: rowlock_ready, rowlock_waiting, rowlock_lease and rowlock_job by id, inside rowlock_verb_end.
insert into rowlock_verb (verb, id, actor, reason, now) values ('cancel', ?1, ?3, ?2, ?4)
