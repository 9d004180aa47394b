-- Notes who set a rollout to what.
-- Index: none read; writes rowlock_audit_id.
-- no twin: postgresql notes it inside set_rollout.sql.
insert into rowlock_audit (at, actor, verb, id, detail) values (?4, ?3, 'rollout', 0, ?1 || ' ' || ?2)
