-- Makes the next statements of a serializable transaction read by index only; returns the previous settings.
-- Index: none.
-- In a serializable transaction, a full scan counts as a read of the whole table, and then a write to any row
-- conflicts.
-- At any other isolation level it returns no row.
-- only here: SQLite has one writer, and no conflicts of this kind.
select s.name, current_setting(s.name) as before, set_config(s.name, s.value, true) as now
from (values
  ('plan_cache_mode', 'force_custom_plan'), ('enable_seqscan', 'off'), ('enable_hashjoin', 'off'), ('enable_mergejoin', 'off')
) as s (name, value)
where current_setting('transaction_isolation') = 'serializable'
