-- The roles of a Rowlock schema on PostgreSQL and the least that each needs. See grants.md.
-- Run it after `rowlock migrate`, as the schema's owner; a superuser or a role with CREATEROLE must run it where the three
-- roles do not exist yet. Running it again changes nothing. For a schema of another name, replace `rowlock.` and the
-- name after `on schema`.

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

-- Enqueues, and reads nothing back but what a key's repeat is answered with: where its job stands and what it returned.
grant usage on sequence rowlock.job_id to rowlock_producer;
grant insert on rowlock.job, rowlock.ready to rowlock_producer;
grant select, insert, update on rowlock.job_key to rowlock_producer;
grant select (id) on rowlock.ready, rowlock.lease, rowlock.case_file, rowlock.waiting to rowlock_producer;
grant select (id, epoch, outcome, result) on rowlock.outcome to rowlock_producer;

-- Claims, settles, recovers, and enqueues next links and compensating jobs. `for update` and `for key share` want the
-- update right on one column at least, even where nothing is ever updated.
grant usage on sequence rowlock.job_id to rowlock_worker;
grant select, insert, delete on rowlock.job to rowlock_worker;
grant select, insert, delete, update (alone) on rowlock.ready to rowlock_worker;
grant select, insert, delete, update (claimed_at) on rowlock.lease to rowlock_worker;
grant select, insert on rowlock.outcome to rowlock_worker;
grant select, insert, delete on rowlock.case_file to rowlock_worker;
grant select, insert, update, delete on rowlock.job_key to rowlock_worker;
grant select, insert, delete, update (beat, dead) on rowlock.worker to rowlock_worker;

-- Its upkeep removes what is over.
grant select on rowlock.waiting to rowlock_worker;
grant select, delete on rowlock.effect, rowlock.completion, rowlock.body_lock to rowlock_worker;
grant select, delete, update (made_at) on rowlock.ledger to rowlock_worker;
grant execute on function rowlock.make_partitions(int, bigint), rowlock.drop_history(timestamptz) to rowlock_worker;

-- Looks at everything and reopens cases.
grant select on rowlock.jobs, rowlock.job, rowlock.ready, rowlock.lease, rowlock.outcome, rowlock.case_file, rowlock.worker,
  rowlock.audit, rowlock.job_key to rowlock_operator;
grant delete on rowlock.case_file to rowlock_operator;
grant insert on rowlock.ready, rowlock.audit to rowlock_operator;
