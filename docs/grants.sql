-- The roles of a Rowlock schema on PostgreSQL and the least that each needs. See grants.md.
-- Run it after `rowlock migrate`, as the schema's owner. If the three roles do not exist yet, a superuser or a role
-- with CREATEROLE must run it. Running it again changes nothing. For a schema of another name, replace `rowlock.` and
-- the name after `on schema`.

do $roles$
declare
  wanted text;
begin
  foreach wanted in array array['rowlock_producer', 'rowlock_worker', 'rowlock_operator'] loop
    if not exists (select from pg_roles where rolname = wanted) then
      begin
        execute format('create role %I nologin', wanted);
      exception
        -- Somebody else made it at the same moment.
        when duplicate_object or unique_violation then null;
      end;
    end if;
  end loop;
end
$roles$;

grant usage on schema rowlock to rowlock_producer, rowlock_worker, rowlock_operator;
grant select on rowlock.migration to rowlock_producer, rowlock_worker, rowlock_operator;

-- Enqueues, and reads back only the answer to a key's repeat: the place of its job and its result.
grant usage on sequence rowlock.job_id to rowlock_producer;
grant insert on rowlock.job, rowlock.ready to rowlock_producer;
grant select, insert, update on rowlock.job_key to rowlock_producer;
grant select (id) on rowlock.ready, rowlock.lease, rowlock.case_file to rowlock_producer;
grant select (id, epoch, outcome, result) on rowlock.outcome to rowlock_producer;
-- Jobs that wait for a name, and completing one.
grant select, insert on rowlock.completion to rowlock_producer;
grant select, insert, delete on rowlock.waiting to rowlock_producer;
-- Jobs of groups: whose turn it is, and who waits.
grant select, insert, update (head) on rowlock.job_group to rowlock_producer, rowlock_worker;

-- Takes keys of the ledger with `once`, and reads the answers of others there.
grant select, insert, update (fingerprint, answer, hold, expires_at, made_at) on rowlock.ledger
  to rowlock_producer, rowlock_worker;

-- Claims, settles, recovers, and enqueues next links and compensations. `for update` and `for key share` want the
-- update right on one column at least, even where nothing is ever updated.
grant usage on sequence rowlock.job_id to rowlock_worker;
grant select, insert, delete on rowlock.job to rowlock_worker;
grant select, insert, delete, update (alone) on rowlock.ready to rowlock_worker;
grant select, insert, delete, update (claimed_at) on rowlock.lease to rowlock_worker;
grant select, insert on rowlock.outcome to rowlock_worker;
grant select, insert, delete, update (error_no) on rowlock.case_file to rowlock_worker;
-- Names the errors of cases. An operator who reopens the cases of an error does so too.
grant select, insert, update (first_seen, last_seen, seen) on rowlock.case_error to rowlock_worker, rowlock_operator;
grant select, insert, update, delete on rowlock.job_key to rowlock_worker;
grant select, insert, delete, update (beat, dead, alone) on rowlock.worker to rowlock_worker;
-- What an effect is called is fixed when its intent is first stored.
grant select, insert, update (state, policy, fingerprint, tries, doubt, epoch, worker, begun_at, deadline_at, ended_at, reply, error,
  resolved_by) on rowlock.effect to rowlock_worker;
grant select, insert, delete, update (since) on rowlock.waiting to rowlock_worker;
grant select, insert on rowlock.completion to rowlock_worker;
grant select, insert, delete, update (id, epoch, worker, taken_at) on rowlock.body_lock to rowlock_worker;
-- Breakers: it makes those that its kinds are bound to, moves them, and notes the changes and the probes.
grant select, insert, update on rowlock.breaker to rowlock_worker;
grant select, insert, delete on rowlock.breaker_log, rowlock.probe to rowlock_worker;
-- Its upkeep removes what is over.
grant delete on rowlock.effect, rowlock.completion, rowlock.ledger, rowlock.job_group, rowlock.case_error to rowlock_worker;
grant execute on function rowlock.make_partitions(int, bigint), rowlock.drop_history(timestamptz) to rowlock_worker;
grant execute on function rowlock.drop_audit to rowlock_worker;
-- What its telemetry shows.
grant select on rowlock.backlog to rowlock_worker;
-- Settles inside a handler's transaction, with the handler's rights.
grant execute on function rowlock.settle_done to rowlock_worker;
-- Enqueues what compensates a job that it retires.
grant execute on function rowlock.compensate to rowlock_worker;
-- Passes the turn of a group on.
grant execute on function rowlock.pass_turns to rowlock_worker;

-- Looks at everything, resolves effects in doubt and completes names.
grant select on rowlock.jobs, rowlock.backlog, rowlock.held, rowlock.stuck, rowlock.doubts, rowlock.case_errors, rowlock.dead_rows,
  rowlock.oldest_transaction, rowlock.job, rowlock.ready, rowlock.lease, rowlock.outcome, rowlock.case_file, rowlock.worker,
  rowlock.audit, rowlock.effects, rowlock.effect, rowlock.ledger, rowlock.waiting, rowlock.completion,
  rowlock.job_key to rowlock_operator;
grant update (state, doubt, reply, ended_at, resolved_by) on rowlock.effect to rowlock_operator;
grant delete on rowlock.waiting to rowlock_operator;
grant insert on rowlock.ready, rowlock.audit, rowlock.completion to rowlock_operator;
grant select on rowlock.job_group to rowlock_operator;
-- Notes on cases.
grant update (error_no, owner, note) on rowlock.case_file to rowlock_operator;
-- Delays, cancels, retires and re-runs jobs, pauses and resumes, reopens and closes cases and gives the job of a case
-- another payload, by functions that run with the owner's rights and note who did it.
grant execute on function rowlock.delay, rowlock.cancel, rowlock.retire, rowlock.rerun, rowlock.pause, rowlock.resume,
  rowlock.reopen, rowlock.close_case, rowlock.edit_case to rowlock_operator;
-- Opens and closes breakers by hand.
grant select on rowlock.breaker, rowlock.breaker_log, rowlock.probe to rowlock_operator;
grant update (state, forced, failures, trips, open_until, version, changed_at, changed_by, reason) on rowlock.breaker
  to rowlock_operator;
grant insert on rowlock.breaker_log to rowlock_operator;

-- Guards with a version counter and rollout gates, in application code and in handlers; only operators turn a gate.
grant select, insert, update (version, changed_at) on rowlock.guard_version to rowlock_producer, rowlock_worker;
grant select on rowlock.setting to rowlock_producer, rowlock_worker, rowlock_operator;
grant insert, update (value, changed_at, changed_by) on rowlock.setting to rowlock_operator;

-- The functions for any language, with what they are made of: they run with their caller's rights.
grant execute on function rowlock.enqueue_v1, rowlock.enqueue_many_v1, rowlock.once_v1, rowlock.answer_v1, rowlock.wake_v1,
  rowlock.complete_v1, rowlock.number_option, rowlock.name_option, rowlock.key_option, rowlock.time_option, rowlock.tags_option,
  rowlock.check_options, rowlock.check_strings, rowlock.check_json, rowlock.canonical, rowlock.fingerprint, rowlock.compensation,
  rowlock.take_key, rowlock.enter_group, rowlock.number_of to rowlock_producer, rowlock_worker;
grant execute on function rowlock.join_v1, rowlock.beat_v1, rowlock.leave_v1, rowlock.claim_v1, rowlock.done_v1, rowlock.fail_v1,
  rowlock.defer_v1, rowlock.release_v1, rowlock.retire_v1, rowlock.cancel_v1, rowlock.recover_v1,
  rowlock.lease_of, rowlock.settle_lease to rowlock_worker;
grant execute on function rowlock.pause_v1, rowlock.resume_v1, rowlock.delay_v1, rowlock.cancel_job_v1,
  rowlock.retire_job_v1, rowlock.rerun_v1, rowlock.reopen_v1 to rowlock_operator;
