-- Records how an external call ended, only while the token holds and no end is recorded yet.
-- Index: rowlock_lease by id, rowlock_effect (id, name).
-- Otherwise it returns no row, and effect/known.sql says why.
-- If this call did not happen, an earlier call still may have happened.
update rowlock_effect set state = case when ?5 = 'undone' and doubt then 'uncertain' else ?5 end, reply = ?6, error = ?7, ended_at = ?8, epoch = ?2, worker = ?3
where id = ?1 and name = ?4 and state in ('open', 'uncertain')
  and exists (select 1 from rowlock_lease l where l.id = ?1 and l.epoch = ?2 and l.worker = ?3)
returning no
