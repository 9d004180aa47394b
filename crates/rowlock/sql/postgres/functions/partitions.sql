-- Partitions: created ahead of time, and dropped with their history.

-- Creates the partitions that the coming days and ids need. It runs with the owner's rights, so that a worker's role
-- needs none.
-- A partition is created apart and then attached, which blocks only readers of the default partition.
-- Other transactions queue behind a lock request that waits. So it waits only for a moment and leaves the rest to the
-- next round.
create or replace function rowlock.make_partitions(days_ahead int, ids_ahead bigint) returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  width constant bigint := 10000000;
  patience constant text := current_setting('lock_timeout');
  made int := 0;
  day date;
  start bigint;
  part text;
begin
  perform pg_advisory_xact_lock(hashtextextended('rowlock partitions', 0));
  perform set_config('lock_timeout', '200ms', true);
  begin
    for i in 0..days_ahead loop
      day := (clock_timestamp() at time zone 'utc')::date + i;
      part := 'outcome_' || to_char(day, 'YYYYMMDD');
      if to_regclass('rowlock.' || part) is null
        -- Rows that came before their partition are in the default partition, and block creating that partition.
        and not exists (
          select from rowlock.outcome_rest r
          where r.ended_at >= day::timestamp at time zone 'utc' and r.ended_at < (day + 1)::timestamp at time zone 'utc')
      then
        execute format('create table rowlock.%I (like rowlock.outcome including defaults including constraints)', part);
        execute format(
          'alter table rowlock.outcome attach partition rowlock.%I for values from (%L) to (%L)',
          part, day::text || ' 00:00:00+00', (day + 1)::text || ' 00:00:00+00');
        made := made + 1;
      end if;
    end loop;
    select last_value / width * width into start from rowlock.job_id;
    loop
      part := 'job_' || start / width;
      if to_regclass('rowlock.' || part) is null
        and not exists (select from rowlock.job_rest r where r.id >= start and r.id < start + width)
      then
        execute format('create table rowlock.%I (like rowlock.job including defaults including constraints)', part);
        execute format('alter table rowlock.job attach partition rowlock.%I for values from (%s) to (%s)', part, start, start + width);
        made := made + 1;
      end if;
      start := start + width;
      exit when start > (select last_value from rowlock.job_id) + ids_ahead;
    end loop;
  exception
    -- A table is locked, or a row reached the default partition after the check: nothing was created this time.
    when lock_not_available or check_violation then made := 0;
  end;
  perform set_config('lock_timeout', patience, true);
  return made;
end
$body$;

-- Drops the outcome partitions whose rows all ended before the given time, and says how many. It removes such rows from
-- the default partition. Dropping blocks every reader and writer of the log, so it also waits only for a moment.
create or replace function rowlock.drop_history(before timestamptz) returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  patience constant text := current_setting('lock_timeout');
  dropped int := 0;
  part text;
begin
  perform set_config('lock_timeout', '200ms', true);
  begin
    for part in
      select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
      where i.inhparent = 'rowlock.outcome'::regclass
        and c.relname ~ '^outcome_[0-9]{8}$'
        and (substr(c.relname, 9)::date + 1)::timestamp at time zone 'utc' <= before
    loop
      execute format('drop table rowlock.%I', part);
      dropped := dropped + 1;
    end loop;
    delete from rowlock.outcome_rest where ended_at < before;
  exception
    when lock_not_available then dropped := 0;
  end;
  perform set_config('lock_timeout', patience, true);
  return dropped;
end
$body$;

revoke all on function rowlock.make_partitions from public;
revoke all on function rowlock.drop_history from public;
