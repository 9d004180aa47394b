-- Records what an operator did to several jobs in one command.
-- Index: none read; writes audit_pkey.
insert into rowlock.audit (actor, verb, id, detail, jobs, after) values ($1, $2, 0, $3, $4, $5)
