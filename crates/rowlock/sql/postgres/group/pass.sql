-- Passes the turn of groups on, in the open transaction, if their head is still the given one.
-- Index: job_group_pkey, waiting_group; writes ready_order, ready_id. All inside rowlock.pass_turns.
-- It returns which queues got work.
select coalesce(rowlock.pass_turns($1::bigint[], $2::bigint[], $3::timestamptz), '{}')
