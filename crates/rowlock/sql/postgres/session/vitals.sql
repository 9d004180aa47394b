-- Reports the server's version, connections, settings, oldest transaction, dead rows, partitions and history.
-- Index: job_pkey, its last entry; no other index of ours: it reads the catalogue and the statistics.
-- The `doctor` command uses it.
select
  current_setting('server_version') as version,
  current_setting('server_version_num')::int as version_no,
  pg_is_in_recovery() as standby,
  current_user::text as role,
  clock_timestamp() as now,
  current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int as connections_max,
  (select sum(d.numbackends)::bigint from pg_stat_database d) as connections,
  (select s.setting::bigint from pg_settings s where s.name = 'statement_timeout') as statement_ms,
  current_setting('autovacuum')::boolean as autovacuum,
  t.pid as oldest_pid,
  extract(epoch from clock_timestamp() - t.xact_start)::bigint as oldest_s,
  coalesce(nullif(t.application_name, ''), t.usename::text) as oldest_who,
  (
    select count(*) from pg_prepared_xacts p
    where p.database = current_database() and p.prepared < clock_timestamp() - interval '5 minutes'
  ) as prepared,
  pg_stat_get_live_tuples(to_regclass('rowlock.ready')) + pg_stat_get_live_tuples(to_regclass('rowlock.lease')) as live_rows,
  pg_stat_get_dead_tuples(to_regclass('rowlock.ready')) + pg_stat_get_dead_tuples(to_regclass('rowlock.lease')) as dead_rows,
  to_regclass('rowlock.outcome_' || to_char((clock_timestamp() at time zone 'utc')::date + 1, 'YYYYMMDD')) is not null as day_ahead,
  to_regclass('rowlock.job_' || (select (coalesce(max(j.id), 0) + 1000000) / 10000000 from rowlock.job j)) is not null as ids_ahead,
  -- From the oldest remaining partition of the outcome log.
  coalesce((
    select (clock_timestamp() at time zone 'utc')::date - min(substr(c.relname, 9)::date)
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'rowlock.outcome'::regclass and c.relname ~ '^outcome_[0-9]{8}$'
  ), 0)::bigint as history_days,
  coalesce(
    pg_stat_get_live_tuples(to_regclass('rowlock.outcome_rest')) + pg_stat_get_live_tuples(to_regclass('rowlock.job_rest')) > 0,
    false
  ) as rest
from (select) one
left join lateral (
  select a.pid, a.xact_start, a.application_name, a.usename
  from pg_stat_activity a
  -- A session with neither a backend_xid nor a backend_xmin keeps no dead rows. A session of another database keeps
  -- none either.
  where a.xact_start is not null and a.pid <> pg_backend_pid() and a.datname = current_database()
    and coalesce(a.backend_xid, a.backend_xmin) is not null
  order by a.xact_start limit 1
) t on true
