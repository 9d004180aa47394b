-- Notes who resolved an effect and how.
-- Index: none read; writes rowlock_audit_id.
-- no twin: postgresql notes it inside effect_resolve.sql.
insert into rowlock_audit (at, actor, verb, id, detail) values (?1, ?2, 'resolve effect', ?3, ?4)
