-- Whether the sweep of waiting jobs has anything to do: a limit has passed.
-- Index: rowlock_waiting_limit.
select exists (select 1 from rowlock_waiting where limit_at <= ?1)
