-- Lists one job's effects in the order of their first intents, or only those in doubt.
-- Index: effect_id_name_key, lease_pkey, job_pkey.
select
  v.no, v.id, v.kind, v.queue, v.name, v.key, v.state, v.policy, v.tries, v.begun_at, v.deadline_at, v.ended_at,
  v.reply::text as reply, v.error, v.resolved_by
from rowlock.effects v where v.id = $1 and (v.state = 'uncertain' or not $2::boolean)
order by v.no limit $3
