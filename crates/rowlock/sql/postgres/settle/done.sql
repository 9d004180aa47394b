-- Records that attempts are done and nothing follows, only where the token still holds; a token that does not come back has lost its lease.
-- Index: lease_pkey; writes outcome_id.
-- no twin: sqlite settles every batch with the same statements.
with gone as (
  delete from rowlock.lease l
  using unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[]) as u (id, epoch, worker, result)
  -- By the key, row by row, whatever the statistics say: one equality more, and an index read from end to end can be a plan.
  where l.id = any (array[u.id]) and l.epoch = u.epoch and l.worker = u.worker
  returning l.id, l.epoch, l.worker, l.attempt, l.claimed_at, u.result
)
insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error, result)
select id, epoch, worker, attempt, 'done', claimed_at, coalesce($5::timestamptz, clock_timestamp()), null, result::json
from gone
returning id, epoch
