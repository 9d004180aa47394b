-- Lets a paused queue or kind go on and notes who did it. No row: it was not paused.
-- Index: setting_pkey; writes audit_id.
with gone as (
  delete from rowlock.setting where name = 'pause:' || $1 returning name
)
insert into rowlock.audit (actor, verb, id, detail)
select $2, 'resume', 0, $1 from gone
