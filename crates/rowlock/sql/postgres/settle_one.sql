-- Records in the handler's own transaction that its attempt is done, only where the token still holds and the transaction is still ours.
-- Index: lease_pkey; writes outcome_id.
-- no twin: sqlite settles every batch with the same statements.
with gone as (
  delete from rowlock.lease
  where id = $1 and epoch = $2 and worker = $3 and current_setting('rowlock_tx.marker', true) = $4
  returning id, epoch, worker, attempt, claimed_at
), logged as (
  insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error, result)
  select id, epoch, worker, attempt, 'done', claimed_at, coalesce($6::timestamptz, clock_timestamp()), null, $5::json
  from gone
)
select exists (select from gone) as applied, coalesce(current_setting('rowlock_tx.marker', true), '') = $4 as marked
