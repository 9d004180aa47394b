-- Keeps the current payload of a case's job in the audit, before the payload is changed.
-- Index: rowlock_case_file by id, rowlock_job by id; writes rowlock_audit_id.
-- only here: PostgreSQL does it in case/edit.sql; SQLite cannot write two tables in one statement.
insert into rowlock_audit (at, actor, verb, id, before, after)
select ?4, ?3, 'edit', j.id, j.payload, ?2
from rowlock_case_file c join rowlock_job j on j.id = c.id where c.id = ?1
