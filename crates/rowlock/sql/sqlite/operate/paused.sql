-- Says whether a queue, kind or group is paused.
-- Index: rowlock_setting by name.
-- only here: PostgreSQL's functions say whether they changed anything.
select exists (select 1 from rowlock_setting where name = 'pause:' || ?1)
