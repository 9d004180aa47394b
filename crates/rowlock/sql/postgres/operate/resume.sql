-- Resumes a paused queue, kind or group and records who did it; says whether it was paused.
-- Index: setting_pkey, job_group_pkey, waiting_group, inside rowlock.resume; writes audit_id.
select rowlock.resume($1, $2)
