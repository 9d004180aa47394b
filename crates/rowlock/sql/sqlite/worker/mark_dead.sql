-- Declares every worker dead that is stale now and was first seen stale at least a third of its lease ago.
-- Index: none; one row per process.
update rowlock_worker set dead = 1
where dead = 0 and beat < ?1 - lease_ms * 1000 and suspect_at <= ?1 - lease_ms * 1000 / 3
returning id
