-- Commits the intent of an external call, only while the token holds and the effect's state allows a call.
-- Index: rowlock_lease by id, rowlock_effect (id, name).
-- Otherwise it returns no row, and effect/known.sql says why.
insert into rowlock_effect
  (id, name, key, state, policy, fingerprint, tries, epoch, worker, begun_at, deadline_at)
select l.id, ?4, ?5, 'open', ?6, ?7, 1, l.epoch, l.worker, ?9, ?9 + ?8
from rowlock_lease l where l.id = ?1 and l.epoch = ?2 and l.worker = ?3
on conflict (id, name) do update set
  state = 'open', policy = excluded.policy,
  fingerprint = case when state = 'undone' then excluded.fingerprint else coalesce(excluded.fingerprint, fingerprint) end,
  tries = tries + case when epoch = excluded.epoch and worker = excluded.worker then 0 else 1 end,
  -- The doubt is answered if a reconciler said no, or if an operator resolved the effect as undone.
  doubt = case
    when state = 'undone' or (?6 = 'ask' and ?10) then 0
    else doubt or state = 'uncertain' or epoch <> excluded.epoch or worker <> excluded.worker
  end,
  epoch = excluded.epoch, worker = excluded.worker, begun_at = excluded.begun_at, deadline_at = excluded.deadline_at,
  ended_at = null, error = null, resolved_by = null
where state = 'undone' or (
  state in ('open', 'uncertain')
  and (fingerprint is null or excluded.fingerprint is null or fingerprint = excluded.fingerprint)
  -- An intent of this same attempt means that its commit got no reply: the call has not begun.
  and (?10 or (state = 'open' and epoch = excluded.epoch and worker = excluded.worker))
)
returning no, begun_at
