-- Says, after a claim that took nothing, whether this worker may still claim; no row if it was declared dead.
-- Index: rowlock_worker by id.
-- only here: PostgreSQL checks the worker inside claim/take.sql.
select id from rowlock_worker where id = ?1 and dead = 0
