-- Notes when a worker was first seen stale. One stale look proves nothing: a long transaction may have held up its beat.
-- Index: none; one row per process.
-- no twin: in postgresql nobody's transaction can hold up a beat.
update rowlock_worker set suspect_at = ?1
where dead = 0 and beat < ?1 - lease_ms * 1000 and suspect_at is null
