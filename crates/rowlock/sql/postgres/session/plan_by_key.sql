-- In a serializable transaction, has the statements that follow read by index alone, and says how each setting was; elsewhere no row.
-- Index: none. A table that is read whole counts as read whole there, and whoever writes any row of it as in conflict.
-- no twin: SQLite has one writer, and no conflicts of this kind.
select s.name, current_setting(s.name) as before, set_config(s.name, s.value, true) as now
from (values
  ('plan_cache_mode', 'force_custom_plan'), ('enable_seqscan', 'off'), ('enable_hashjoin', 'off'), ('enable_mergejoin', 'off')
) as s (name, value)
where current_setting('transaction_isolation') = 'serializable'
