-- Retires a job that is not finished, for an operator, and records it in the audit.
-- Index: rowlock_ready, rowlock_waiting, rowlock_lease, rowlock_job by id, rowlock_outcome_id, rowlock_job_chain,
-- inside rowlock_verb_end.
insert into rowlock_verb (verb, id, actor, reason, now) values ('retire', ?1, ?3, ?2, ?4)
