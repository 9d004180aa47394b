-- Keeps in the audit what was on a case before it is noted on, and what will be.
-- Index: rowlock_case_file by id; writes rowlock_audit_id.
-- no twin: postgresql does it in case/note.sql; SQLite cannot write two tables in one.
insert into rowlock_audit (at, actor, verb, id, before, after)
select
  ?5, ?4, 'note', c.id, json_object('owner', c.owner, 'note', c.note),
  json_object('owner', coalesce(?2, c.owner), 'note', coalesce(?3, c.note))
from rowlock_case_file c where c.id = ?1
