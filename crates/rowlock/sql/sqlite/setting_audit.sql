-- Notes who paused or resumed what.
-- Index: none read; writes rowlock_audit_id.
-- no twin: postgresql notes it inside pause.sql and resume.sql.
insert into rowlock_audit (at, actor, verb, id, detail) values (?4, ?2, ?3, 0, ?1)
