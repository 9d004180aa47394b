-- Removes a breaker's probes whose lease is gone.
-- Index: rowlock_probe by name; rowlock_lease by id.
delete from rowlock_probe as p
where p.name = ?1
  and not exists (select 1 from rowlock_lease l where l.id = p.id and l.epoch = p.epoch and l.worker = p.worker)
