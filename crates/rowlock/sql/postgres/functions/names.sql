-- Names as numbers, and options that are read from JSON.

-- The number of a name in the narrow tables: the first eight bytes of its SHA-256. A kind's name is followed by @ and
-- its version.
create or replace function rowlock.number_of(name text) returns bigint
language sql immutable strict parallel safe
as $body$
  select ('x' || encode(substring(sha256(convert_to(name, 'UTF8')) from 1 for 8), 'hex'))::bit(64)::bigint
$body$;

-- Reads a whole number from options, or returns the default.
create or replace function rowlock.number_option(options json, field text, otherwise bigint, low bigint, high bigint) returns bigint
language plpgsql immutable parallel safe security invoker set search_path = pg_catalog, pg_temp
as $body$
declare
  given text := options ->> field;
begin
  if given is null then
    return otherwise;
  end if;
  if json_typeof(options -> field) <> 'number' or given !~ '^-?[0-9]{1,18}$' or given::bigint not between low and high then
    raise exception '%: % is not a whole number from % to %', field, left(given, 40), low, high using errcode = 'RL012';
  end if;
  return given::bigint;
end
$body$;

-- Reads a name from options, or returns the default. Names are what people type and read.
create or replace function rowlock.name_option(options json, field text, otherwise text) returns text
language plpgsql immutable parallel safe security invoker set search_path = pg_catalog, pg_temp
as $body$
declare
  given text := coalesce(options ->> field, otherwise);
begin
  if given !~ '^[A-Za-z0-9_.:/-]{1,100}$' then
    raise exception '%: "%" is not a valid name; use 1 to 100 of a-z, A-Z, 0-9 and -_.:/', field, left(given, 40) using errcode = 'RL012';
  end if;
  return given;
end
$body$;

-- Reads a key from options. Keys are made up by callers.
create or replace function rowlock.key_option(options json, field text) returns text
language plpgsql immutable parallel safe security invoker set search_path = pg_catalog, pg_temp
as $body$
declare
  given text := options ->> field;
begin
  if octet_length(given) not between 1 and 250 or given ~ '[\u0001-\u001f\u007f-\u009f]' then
    raise exception '%: "%" is not valid; use 1 to 250 bytes without control characters', field, left(given, 40) using errcode = 'RL012';
  end if;
  return given;
end
$body$;

-- Reads a time from options. The time must have a zone, so that the session's zone does not matter.
create or replace function rowlock.time_option(options json, field text) returns timestamptz
language plpgsql stable parallel safe security invoker set search_path = pg_catalog, pg_temp
as $body$
declare
  given text := options ->> field;
begin
  if given is null then
    return null;
  end if;
  if given !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)$' then
    raise exception '%: "%" is not a time, such as 2030-01-01T12:00:00Z', field, left(given, 40) using errcode = 'RL012';
  end if;
  return least(greatest(given::timestamptz, '1970-01-01T00:00:00Z'), '9998-12-31T00:00:00Z');
exception
  when invalid_datetime_format or datetime_field_overflow or invalid_time_zone_displacement_value then
    raise exception '%: "%" is not a time, such as 2030-01-01T12:00:00Z', field, left(given, 40) using errcode = 'RL012';
end
$body$;

-- Checks the options of a job. It refuses unknown options, and options that contradict each other.
create or replace function rowlock.check_options(options json, known text[]) returns void
language plpgsql immutable parallel safe security invoker set search_path = pg_catalog, pg_temp
as $body$
declare
  odd text;
begin
  if options is null or json_typeof(options) <> 'object' then
    raise exception 'options: use an object such as {"queue": "mail"}' using errcode = 'RL012';
  end if;
  select k.key into odd from json_object_keys(options) as k (key) where k.key <> all (known) limit 1;
  if found then
    raise exception '%: unknown option; the options are %', left(odd, 40), array_to_string(known, ', ') using errcode = 'RL012';
  end if;
end
$body$;

-- Reads tags from options: an array of names.
create or replace function rowlock.tags_option(options json) returns json
language plpgsql immutable parallel safe security invoker set search_path = pg_catalog, pg_temp
as $body$
declare
  given json := options -> 'tags';
begin
  if given is null or json_typeof(given) = 'null' then
    return null;
  end if;
  if json_typeof(given) <> 'array' or json_array_length(given) > 32
    or exists (select from json_array_elements(given) t where json_typeof(t) <> 'string' or t #>> '{}' !~ '^[A-Za-z0-9_.:/-]{1,100}$')
  then
    raise exception 'tags: use up to 32 names of 1 to 100 of a-z, A-Z, 0-9 and -_.:/' using errcode = 'RL012';
  end if;
  return case when json_array_length(given) > 0 then given end;
end
$body$;

revoke all on function rowlock.number_of, rowlock.number_option, rowlock.name_option, rowlock.key_option,
  rowlock.time_option, rowlock.check_options, rowlock.tags_option from public;
