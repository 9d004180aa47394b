-- Removes those of the given enqueue keys whose hold is over; keeps a key while its job is in any place.
-- Index: the primary keys of rowlock_job_key, rowlock_lease, rowlock_ready, rowlock_case_file and rowlock_waiting.
delete from rowlock_job_key
where key in (select value from json_each(?1))
  and (hold = 'open' or (hold = 'period' and expires_at <= ?2) or (hold = 'policy' and made_at < ?3))
  and not exists (select 1 from rowlock_lease l where l.id = rowlock_job_key.id)
  and not exists (select 1 from rowlock_ready r where r.id = rowlock_job_key.id)
  and not exists (select 1 from rowlock_case_file c where c.id = rowlock_job_key.id)
  and not exists (select 1 from rowlock_waiting w where w.id = rowlock_job_key.id)
