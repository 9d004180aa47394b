-- Settles an attempt as done in the handler's own transaction, and enqueues the next job.
-- Index: lease_pkey; writes outcome_id, and for a next job job_pkey, ready_order, ready_id. All inside
-- rowlock.settle_done.
-- RL001 if the token no longer holds, RL002 if the transaction is not ours.
-- only here: SQLite settles every batch with the same statements.
select rowlock.settle_done($1, $2, $3, $4, $5, $6, $7::text::jsonb, $8)
