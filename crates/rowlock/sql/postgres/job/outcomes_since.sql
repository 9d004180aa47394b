-- Lists how attempts of these jobs ended after the given time, the last three of each job.
-- Index: outcome_id.
select o.id, o.error from unnest($1::bigint[]) as u (id)
cross join lateral (
  select x.id, x.error from rowlock.outcome x where x.id = u.id and x.ended_at > $2 order by x.epoch desc limit 3
) o
