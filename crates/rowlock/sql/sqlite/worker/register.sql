-- Registers a worker process under a random id that no other process ever had.
-- Index: rowlock_worker by id.
insert into rowlock_worker (id, name, lease_ms, beat, started_at) values (?1, ?2, ?3, ?4, ?4)
