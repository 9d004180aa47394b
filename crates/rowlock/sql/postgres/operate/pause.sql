-- Pauses a queue, kind or group and records who did it; says whether it was running before.
-- Index: setting_pkey, job_group_pkey, ready_id, inside rowlock.pause; writes audit_id.
-- Workers check for pauses twice a second.
select rowlock.pause($1, $2)
