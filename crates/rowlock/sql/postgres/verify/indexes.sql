-- Checks that the indexes exist and are valid, and that those that decide races are unique.
-- Index: none of ours; reads the catalogue by name, so it ignores an index that an operator is building beside them.
with looked as materialized (
  select u.name, u.decides
  from (values
    ('audit_id', false), ('audit_pkey', true), ('body_lock_pkey', true), ('breaker_log_changed', false), ('breaker_log_pkey', true),
    ('breaker_pkey', true), ('case_error_pkey', true), ('case_file_error', false), ('case_file_pkey', true), ('completion_pkey', true),
    ('effect_doubt', false), ('effect_id_name_key', true), ('effect_pkey', true), ('guard_version_pkey', true),
    ('job_chain', false), ('job_created', false), ('job_group_paused', false), ('job_group_pkey', true), ('job_group_vacant', false),
    ('job_in_group', false), ('job_key_id', false), ('job_key_made', false), ('job_key_pkey', true),
    ('job_pkey', true), ('job_waits_for', false), ('lease_pkey', true), ('ledger_made', false), ('ledger_pkey', true),
    ('migration_pkey', true), ('outcome_id', false), ('probe_pkey', true), ('ready_id', true), ('ready_order', true), ('setting_pkey', true),
    ('waiting_group', false), ('waiting_limit', false), ('waiting_name', false), ('waiting_pkey', true), ('worker_pkey', true)
  ) as u (name, decides)
), broken as (
  select
    null::bigint as job,
    case
      when i.indexrelid is null then format('index %s is missing', l.name)
      when not i.indisvalid then format('index %s is not valid', l.name)
      else format('index %s is not unique', l.name)
    end as what
  from looked l left join pg_index i on i.indexrelid = to_regclass('rowlock.' || l.name)
  where i.indexrelid is null or not i.indisvalid or (l.decides and not i.indisunique)
)
select
  (select count(*) from looked) as looked, true as whole, (select count(*) from broken) as broken,
  (select json_agg(f)::text from (select job, what from broken order by job limit $1) f) as found
