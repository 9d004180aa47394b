-- Notes what somebody did, to which job if it was one.
-- Index: none read; writes rowlock_audit_id.
-- no twin: postgresql notes it inside the statements of the deeds themselves.
insert into rowlock_audit (at, actor, verb, id, detail) values (?1, ?2, ?3, ?4, ?5)
