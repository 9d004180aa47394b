-- Records how an outside call ended, only while the token holds and nobody has recorded an end before; else no row, and effect/known.sql says why.
-- Index: rowlock_lease by id, rowlock_effect (id, name).
-- That this call did not happen says nothing of an earlier one.
update rowlock_effect set state = case when ?5 = 'undone' and doubt then 'uncertain' else ?5 end, reply = ?6, error = ?7, ended_at = ?8, epoch = ?2, worker = ?3
where id = ?1 and name = ?4 and state in ('open', 'uncertain')
  and exists (select 1 from rowlock_lease l where l.id = ?1 and l.epoch = ?2 and l.worker = ?3)
returning no
