-- How attempts of these jobs went wrong after that time.
-- Index: outcome_id.
select o.id, o.error from unnest($1::bigint[]) as u (id)
cross join lateral (
  select x.id, x.error from rowlock.outcome x where x.id = u.id and x.ended_at > $2 and x.error is not null limit 3
) o
