-- Makes a job due at another time, or now, and records it in the audit.
-- Index: rowlock_ready by id, rowlock_waiting by id, inside rowlock_verb_delay.
insert into rowlock_verb (verb, id, actor, at, now) values (case when ?2 is null then 'run now' else 'delay' end, ?1, ?3, ?2, ?4)
