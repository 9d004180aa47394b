-- Lists every queue and kind that is paused.
-- Index: none; the table holds only what operators set.
select substr(name, 7) as name, value, changed_at, changed_by from rowlock_setting where substr(name, 1, 6) = 'pause:' order by name
