-- Records when a worker was first seen stale; it may be alive, with a heartbeat delayed by a long transaction.
-- Index: none; one row per process.
-- only here: in PostgreSQL, no other transaction can delay a heartbeat.
update rowlock_worker set suspect_at = ?1
where dead = 0 and beat < ?1 - lease_ms * 1000 and suspect_at is null
