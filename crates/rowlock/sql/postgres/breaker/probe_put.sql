-- Records the jobs just claimed as probes of a breaker.
-- Index: writes probe_pkey.
insert into rowlock.probe (name, id, epoch, worker)
select $1, t.id, t.epoch, $4 from unnest($2::bigint[], $3::bigint[]) as t (id, epoch)
