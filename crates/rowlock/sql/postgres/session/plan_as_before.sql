-- Restores the planner settings of the transaction that session/plan_by_key.sql returned.
-- Index: none.
-- only here: SQLite has no such settings.
select set_config(s.name, s.value, true) from unnest($1::text[], $2::text[]) as s (name, value)
