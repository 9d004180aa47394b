-- Takes the keys that are free; key/take.sql gives them their jobs' ids before the transaction ends.
-- Index: the primary key of rowlock_job_key.
insert into rowlock_job_key (key, id, fingerprint, hold, expires_at, made_at)
select
  d.value ->> 'key', 0, unhex(d.value ->> 'fingerprint'), d.value ->> 'hold', ?2 + (d.value ->> 'period_us'), ?2
from json_each(?1) d
where true
on conflict (key) do nothing
returning key, id
