-- Passes the turn of groups on where their head is still the one given, in the transaction that is open; says which queues got work.
-- Index: job_group_pkey, waiting_group; writes ready_order, ready_id. All inside rowlock.pass_turns.
select coalesce(rowlock.pass_turns($1::bigint[], $2::bigint[], $3::timestamptz), '{}')
