-- Records who changed the state of a breaker.
-- Index: writes audit_id.
-- only here: SQLite uses operate/audit_put.sql for every operator command.
insert into rowlock.audit (actor, verb, id, detail) values ($1, 'breaker', 0, $2)
