-- Gives keys to the jobs just inserted, only if the id that was read still has the key: 0 for keys just taken.
-- Index: the primary key of rowlock_job_key.
update rowlock_job_key
set
  id = d.value ->> 'id', fingerprint = unhex(d.value ->> 'fingerprint'), hold = d.value ->> 'hold',
  expires_at = ?2 + (d.value ->> 'period_us'), made_at = ?2
from json_each(?1) d
where rowlock_job_key.key = d.value ->> 'key' and rowlock_job_key.id = d.value ->> 'old_id'
returning key
