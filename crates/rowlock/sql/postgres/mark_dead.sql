-- Declares dead every worker whose last beat is older than its lease.
-- Index: none; one row per process.
update rowlock.worker set dead = true
where not dead and beat < coalesce($1::timestamptz, clock_timestamp()) - lease_ms * interval '1 millisecond'
returning id
