-- Lists effects, newest first.
-- Index: effect_pkey, lease_pkey, job_pkey.
select
  v.no, v.id, v.kind, v.queue, v.name, v.key, v.state, v.policy, v.tries, v.begun_at, v.deadline_at, v.ended_at,
  v.reply::text as reply, v.error, v.resolved_by
from rowlock.effects v order by v.no desc limit $1
