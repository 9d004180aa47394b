-- Records how attempts ended, only if the token still holds; returns which tokens did, and which queues got work.
-- Index: lease_pkey, outcome_id (history of a retired job); writes outcome_id, ready_order, ready_id. All inside
-- rowlock.end_leases.
select held, woken from rowlock.end_leases($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
