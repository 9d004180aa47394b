-- Records in the handler's own transaction that its attempt is done, with the job that follows: RL001 where the token no longer holds, RL002 where the transaction is not ours.
-- Index: lease_pkey; writes outcome_id, and for a next job job_pkey, ready_order, ready_id. All inside rowlock.settle_done.
-- no twin: sqlite settles every batch with the same statements.
select rowlock.settle_done($1, $2, $3, $4, $5, $6, $7::text::jsonb, $8)
