-- Commits the intent of an external call, only while the token holds and the effect's state allows a call.
-- Index: lease_pkey, effect_id_name_key. If another transaction holds the row, the statement waits and checks the row
-- as it is then.
-- Otherwise it returns no row, and effect/known.sql says why.
insert into rowlock.effect as e
  (id, name, key, state, policy, fingerprint, tries, epoch, worker, begun_at, deadline_at)
select l.id, $4, $5, 'open', $6, $7, 1, l.epoch, l.worker, t.now, t.now + $8::bigint * interval '1 microsecond'
from
  (select id, epoch, worker from rowlock.lease where id = $1 and epoch = $2 and worker = $3 for share) l,
  (select coalesce($9::timestamptz, clock_timestamp()) as now) t
on conflict (id, name) do update set
  state = 'open', policy = excluded.policy,
  fingerprint = case when e.state = 'undone' then excluded.fingerprint else coalesce(excluded.fingerprint, e.fingerprint) end,
  tries = e.tries + case when e.epoch = excluded.epoch and e.worker = excluded.worker then 0 else 1 end,
  -- The doubt is answered if a reconciler said no, or if an operator resolved the effect as undone.
  doubt = case
    when e.state = 'undone' or ($6 = 'ask' and $10) then false
    else e.doubt or e.state = 'uncertain' or e.epoch <> excluded.epoch or e.worker <> excluded.worker
  end,
  epoch = excluded.epoch, worker = excluded.worker, begun_at = excluded.begun_at, deadline_at = excluded.deadline_at,
  ended_at = null, error = null, resolved_by = null
where e.state = 'undone' or (
  e.state in ('open', 'uncertain')
  and (e.fingerprint is null or excluded.fingerprint is null or e.fingerprint = excluded.fingerprint)
  -- An intent of this same attempt means that its commit got no reply: the call has not begun.
  and ($10::boolean or (e.state = 'open' and e.epoch = excluded.epoch and e.worker = excluded.worker))
)
returning e.no, e.begun_at, (
  -- The values from before this statement.
  select b.state = 'open' and (b.epoch <> e.epoch or b.worker <> e.worker) from rowlock.effect b where b.no = e.no
) as doubted
