-- Lists every rollout that was ever set.
-- Index: none; the table holds only what operators set.
select substr(name, 9) as name, value, changed_at, changed_by from rowlock.setting where left(name, 8) = 'rollout:' order by name
