-- Raises a counter, or only if it still stands where it was seen: no row comes back when it does not. One that is not there begins at 1.
-- Index: guard_version_pkey. One statement is enough: on conflict waits for the row and compares what was committed last, whatever the snapshot.
with locked as materialized (select pg_advisory_xact_lock($2))
insert into rowlock.guard_version as g (key, version, changed_at)
select $1, 1, coalesce($4::timestamptz, clock_timestamp()) from locked
on conflict (key) do update set version = g.version + 1, changed_at = excluded.changed_at
where $3::bigint is null or g.version = $3
returning version
