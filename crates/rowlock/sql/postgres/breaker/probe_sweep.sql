-- Removes a breaker's probes whose lease is gone.
-- Index: probe_pkey; lease_pkey.
delete from rowlock.probe p
where p.name = $1
  and not exists (select from rowlock.lease l where l.id = p.id and l.epoch = p.epoch and l.worker = p.worker)
