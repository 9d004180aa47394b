-- Sets a rollout's percentage; workers check every half second.
-- Index: rowlock_setting by name.
insert into rowlock_setting (name, value, changed_at, changed_by) values ('rollout:' || ?1, ?2, ?4, ?3)
on conflict (name) do update set value = excluded.value, changed_at = excluded.changed_at, changed_by = excluded.changed_by
