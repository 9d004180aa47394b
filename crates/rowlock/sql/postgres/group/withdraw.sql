-- Moves the heads of paused groups from ready back to waiting; a head that is leased goes on.
-- Index: job_group_paused, ready_id; writes waiting_pkey, waiting_group. All inside rowlock.withdraw.
select rowlock.withdraw($1, null, $2::timestamptz)
