-- Every queue and kind that is paused.
-- Index: none; the table holds what people set by hand.
select substr(name, 7) as name, value, changed_at, changed_by from rowlock.setting where left(name, 6) = 'pause:' order by name
