-- Returns the holders of these keys: their jobs' places and last outcomes; keys removed meanwhile are missing.
-- Index: job_key_pkey; lease_pkey, ready_id, case_file_pkey, waiting_pkey, outcome_id.
select
  k.key, k.id, k.fingerprint, k.hold,
  coalesce(k.expires_at <= coalesce($2::timestamptz, clock_timestamp()), false) as passed,
  case
    when l.id is not null then 'leased'
    when r.id is not null then 'ready'
    when c.id is not null then 'case'
    when w.id is not null then 'waiting'
    when o.id is not null then 'finished'
  end as state,
  o.outcome, o.result::text as result
from rowlock.job_key k
left join rowlock.lease l on l.id = k.id
left join rowlock.ready r on r.id = k.id
left join rowlock.case_file c on c.id = k.id
left join rowlock.waiting w on w.id = k.id
left join lateral (
  select x.id, x.outcome, x.result
  from rowlock.outcome x where x.id = k.id order by x.epoch desc limit 1
) o on true
where k.key = any ($1::text[])
