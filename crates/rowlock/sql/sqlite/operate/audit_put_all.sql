-- Records what an operator did to several jobs in one command.
-- Index: none read; writes rowlock_audit_id.
insert into rowlock_audit (at, actor, verb, id, detail, jobs, after) values (?6, ?1, ?2, 0, ?3, ?4, ?5)
