-- Records the jobs just claimed as probes of a breaker.
-- Index: writes rowlock_probe by name and id.
insert into rowlock_probe (name, id, epoch, worker)
select ?1, t.value ->> 0, t.value ->> 1, ?3 from json_each(?2) t
