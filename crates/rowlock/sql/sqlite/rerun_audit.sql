-- Notes that a finished job runs once more, how it ended before and where it stands now.
-- Index: rowlock_job, rowlock_ready, rowlock_waiting, rowlock_lease and rowlock_case_file by id; writes rowlock_audit_id.
-- no twin: postgresql notes it inside rowlock.rerun.
insert into rowlock_audit (at, actor, verb, id, detail, before, after)
select ?1, ?2, 'rerun', j.id, ?4, ?5, j.state from rowlock_jobs j where j.id = ?3
