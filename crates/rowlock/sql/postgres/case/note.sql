-- Stores the owner and the findings of a case, each if given, and keeps the old values in the audit.
-- Index: case_file_pkey.
with old as materialized (
  select c.id, c.owner, c.note from rowlock.case_file c where c.id = $1 for update
), noted as (
  update rowlock.case_file c set owner = coalesce($2, c.owner), note = coalesce($3, c.note) from old o where c.id = o.id
)
insert into rowlock.audit (actor, verb, id, before, after)
select
  $4, 'note', o.id, jsonb_build_object('owner', o.owner, 'note', o.note)::text,
  jsonb_build_object('owner', coalesce($2, o.owner), 'note', coalesce($3, o.note))::text
from old o
