-- Records what an operator did, and to which job if it was one job.
-- Index: none read; writes rowlock_audit_id.
-- only here: PostgreSQL records it inside the statements of the commands themselves.
insert into rowlock_audit (at, actor, verb, id, detail) values (?1, ?2, ?3, ?4, ?5)
