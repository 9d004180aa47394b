-- Pauses a queue, kind or group and notes who did it; workers look twice a second. Whether it went on before.
-- Index: setting_pkey, job_group_pkey, ready_id, inside rowlock.pause; writes audit_id.
select rowlock.pause($1, $2)
