-- Pauses a queue or kind; workers look twice a second. No row: it was paused before.
-- Index: rowlock_setting by name.
insert into rowlock_setting (name, value, changed_at, changed_by) values ('pause:' || ?1, '', ?3, ?2)
on conflict (name) do nothing
