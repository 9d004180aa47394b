-- Checks that the indexes exist, and that those that decide races are unique.
-- Index: none of ours; reads the catalogue.
with looked (name, decides) as materialized (
  values
    ('rowlock_audit_id', 0), ('rowlock_breaker_log_changed', 0), ('rowlock_case_file_error', 0), ('rowlock_effect_doubt', 0), ('rowlock_job_chain', 0), ('rowlock_job_group_paused', 0),
    ('rowlock_job_in_group', 0), ('rowlock_job_key_id', 0),
    ('rowlock_job_key_made', 0), ('rowlock_job_waits_for', 0), ('rowlock_ledger_made', 0), ('rowlock_outcome_id', 1),
    ('rowlock_ready_order', 1), ('rowlock_waiting_group', 0), ('rowlock_waiting_limit', 0), ('rowlock_waiting_name', 0),
    ('sqlite_autoindex_rowlock_body_lock_1', 1), ('sqlite_autoindex_rowlock_breaker_1', 1),
    ('sqlite_autoindex_rowlock_breaker_log_1', 1), ('sqlite_autoindex_rowlock_completion_1', 1),
    ('sqlite_autoindex_rowlock_effect_1', 1), ('sqlite_autoindex_rowlock_guard_version_1', 1),
    ('sqlite_autoindex_rowlock_job_key_1', 1), ('sqlite_autoindex_rowlock_ledger_1', 1),
    ('sqlite_autoindex_rowlock_probe_1', 1), ('sqlite_autoindex_rowlock_setting_1', 1)
), found as materialized (
  select i.name, i."unique" as decides
  from sqlite_schema t cross join pragma_index_list(t.name) i
  where t.type = 'table' and t.name glob 'rowlock_*'
), broken as (
  select
    null as job, format('index %s is %s', l.name, case when f.name is null then 'missing' else 'not unique' end) as what
  from looked l left join found f on f.name = l.name
  where f.name is null or l.decides > f.decides
)
select
  (select count(*) from looked) as looked, 1 as whole, (select count(*) from broken) as broken,
  (select json_group_array(json_object('job', job, 'what', what)) from (select job, what from broken order by job limit +?1)) as found
