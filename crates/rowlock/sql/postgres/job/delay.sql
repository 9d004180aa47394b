-- Makes a job due at another time, or now; returns when it was due before.
-- Index: ready_id, waiting_pkey, inside rowlock.delay.
select rowlock.delay($1, $2::timestamptz, $3)
