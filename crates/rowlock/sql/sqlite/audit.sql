-- Notes what somebody did to a job.
-- Index: none read; writes rowlock_audit_id.
-- no twin: postgresql notes it inside reopen.sql.
insert into rowlock_audit (at, actor, verb, id) values (?1, ?2, ?3, ?4)
