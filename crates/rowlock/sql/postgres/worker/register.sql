-- Registers a worker process under a random id that no other process ever had.
-- Index: worker_pkey.
insert into rowlock.worker (id, name, lease_ms, beat, started_at)
select $1, $2, $3, t.now, t.now from (select coalesce($4::timestamptz, clock_timestamp()) as now) t
