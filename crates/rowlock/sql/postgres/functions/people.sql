-- The protocol for every language: operator commands.

-- Each command is recorded in the audit; see the functions of the same names. A job is named by its id. A handler's
-- `cancel_v1` and `retire_v1` take a token.
create or replace function rowlock.pause_v1(target text, actor text) returns boolean
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$ select rowlock.pause(target, actor) $body$;

create or replace function rowlock.resume_v1(target text, actor text) returns boolean
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$ select rowlock.resume(target, actor) $body$;

create or replace function rowlock.delay_v1(job bigint, until timestamptz, actor text) returns timestamptz
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$ select rowlock.delay(job, until, actor) $body$;

create or replace function rowlock.cancel_job_v1(job bigint, reason text, actor text) returns text
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$ select rowlock.cancel(job, reason, actor) $body$;

create or replace function rowlock.retire_job_v1(job bigint, reason text, actor text) returns text
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$ select rowlock.retire(job, reason, actor) $body$;

create or replace function rowlock.rerun_v1(job bigint, reason text, actor text) returns text
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$ select rowlock.rerun(job, reason, actor) $body$;

create or replace function rowlock.reopen_v1(job bigint, actor text) returns text
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$ select rowlock.reopen(job, actor) $body$;

revoke all on function rowlock.retire_job_v1, rowlock.cancel_job_v1, rowlock.pause_v1, rowlock.resume_v1,
  rowlock.delay_v1, rowlock.rerun_v1, rowlock.reopen_v1 from public;
