-- Lets a paused queue or kind go on. No row: it was not paused.
-- Index: rowlock_setting by name.
delete from rowlock_setting where name = 'pause:' || ?1
