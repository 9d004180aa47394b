-- Notes who put a breaker where it is.
-- Index: writes audit_id.
-- no twin: SQLite's operate/audit_put.sql does it for every verb.
insert into rowlock.audit (actor, verb, id, detail) values ($1, 'breaker', 0, $2)
