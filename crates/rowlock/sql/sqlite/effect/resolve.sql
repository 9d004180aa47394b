-- Records what an operator found out about an effect, only while it is in doubt and its call is not under way.
-- Index: rowlock_effect by no, rowlock_lease by id.
update rowlock_effect as e set state = ?2, doubt = 0, reply = ?3, resolved_by = ?4, ended_at = ?5
where e.no = ?1 and e.state in ('open', 'uncertain') and not (
  e.state = 'open'
  and exists (select 1 from rowlock_lease l where l.id = e.id and l.epoch = e.epoch and l.worker = e.worker)
)
returning id, name
