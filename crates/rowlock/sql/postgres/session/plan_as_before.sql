-- Gives the transaction the planner settings back that session/plan_by_key.sql found.
-- Index: none.
-- no twin: SQLite has no such settings.
select set_config(s.name, s.value, true) from unnest($1::text[], $2::text[]) as s (name, value)
