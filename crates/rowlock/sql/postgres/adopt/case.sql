-- Creates a case for each retired row, in the commit that retires it.
-- Index: none read; writes job_pkey, case_file_pkey, case_file_error, outcome_id.
-- The case's job puts the row back when the case is reopened.
-- only here: tables are adopted on PostgreSQL only.
with input as materialized (
  select nextval('rowlock.job_id') as id, u.uid, u.payload, u.reason, coalesce($8::timestamptz, clock_timestamp()) as now
  from unnest($1::uuid[], $2::text[], $3::text[]) as u (uid, payload, reason)
), body as (
  insert into rowlock.job (id, uid, kind, version, queue, priority, attempts_max, payload, position, created_at)
  select id, uid, $4, 1, $5, 3, 10, payload::json, 0, now from input
), logged as (
  insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error)
  select id, 1, 0, 0, 'retired', now, now, reason from input
)
insert into rowlock.case_file (id, epoch, attempt, attempts_max, queue_no, kind_no, priority, reason, retired_at, history)
select
  id, 1, 0, 10, $6, $7, 3, reason, now,
  jsonb_build_array(jsonb_build_object(
    'epoch', 1, 'attempt', 0, 'outcome', 'retired', 'worker', 0, 'started_at', now, 'ended_at', now, 'error', reason))
from input
