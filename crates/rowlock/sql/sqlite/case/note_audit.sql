-- Keeps the old and the new notes of a case in the audit, before they are changed.
-- Index: rowlock_case_file by id; writes rowlock_audit_id.
-- only here: PostgreSQL does it in case/note.sql; SQLite cannot write two tables in one statement.
insert into rowlock_audit (at, actor, verb, id, before, after)
select
  ?5, ?4, 'note', c.id, json_object('owner', c.owner, 'note', c.note),
  json_object('owner', coalesce(?2, c.owner), 'note', coalesce(?3, c.note))
from rowlock_case_file c where c.id = ?1
