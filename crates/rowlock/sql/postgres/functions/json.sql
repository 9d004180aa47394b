-- JSON: the canonical form, its fingerprint, and what is refused.

-- JSON in the canonical form for fingerprints: sorted fields, no spaces, one way to write strings, numbers as given.
create or replace function rowlock.canonical(value json) returns text
language plpgsql immutable strict parallel safe security invoker set search_path = pg_catalog, pg_temp
as $body$
begin
  case json_typeof(value)
    when 'object' then
      return '{' || coalesce((
        select string_agg(to_json(f.key)::text || ':' || rowlock.canonical(f.value) || ',', '' order by f.key collate "C")
        from (
          -- If a field is given twice, the last one counts.
          select distinct on (e.key collate "C") e.key, e.value
          from json_each(value) with ordinality as e (key, value, no)
          order by e.key collate "C", e.no desc
        ) f
      ), '') || '}';
    when 'array' then
      return '[' || coalesce((
        select string_agg(rowlock.canonical(e.item) || ',', '' order by e.no)
        from json_array_elements(value) with ordinality as e (item, no)
      ), '') || ']';
    when 'string' then
      return to_json(value #>> '{}')::text;
    else
      return btrim(value::text, e' \t\n\r');
  end case;
end
$body$;

-- The fingerprint that tells apart two requests under one key.
create or replace function rowlock.fingerprint(what text, request json) returns bytea
language sql immutable strict parallel safe security invoker set search_path = pg_catalog, pg_temp
as $body$
  select sha256(convert_to(what, 'UTF8') || '\x00'::bytea || convert_to(rowlock.canonical(request), 'UTF8'))
$body$;

-- Refuses JSON with invalid strings: a NUL character, or half of a surrogate pair. Call it before any field is read,
-- because reading such a string would fail without a code of ours. It returns its input.
create or replace function rowlock.check_strings(field text, value json) returns json
language plpgsql immutable security invoker set search_path = pg_catalog, pg_temp
as $body$
begin
  if value::text ~ '(^|[^\\])(\\\\)*\\u0000' then
    raise exception '%: a string contains a NUL character; PostgreSQL cannot store it', field using errcode = 'RL012';
  end if;
  if value::text ~ '\\u[dD][89a-fA-F]' then
    begin
      perform value::jsonb;
    exception
      when data_exception then
        raise exception '%: a string contains half of a surrogate pair', field using errcode = 'RL012';
    end;
  end if;
  return value;
end
$body$;

-- Refuses JSON that cannot be stored: too large, too deep, or with invalid strings.
create or replace function rowlock.check_json(field text, value json) returns void
language plpgsql immutable security invoker set search_path = pg_catalog, pg_temp
as $body$
declare
  -- Keeps only brackets, without those inside of strings.
  bare constant text := regexp_replace(regexp_replace(value::text, '"([^"\\]|\\.)*"', '', 'g'), '[^][{}]', '', 'g');
  shut text := bare;
begin
  if octet_length(value::text) > 1048576 then
    raise exception '%: % bytes, at most 1048576; store large data elsewhere and enqueue a reference to it', field, octet_length(value::text)
      using errcode = 'RL012';
  end if;
  perform rowlock.check_strings(field, value);
  -- Each round removes the innermost level.
  for level in 1..100 loop
    exit when shut = '';
    shut := regexp_replace(shut, '\[\]|\{\}', '', 'g');
  end loop;
  if shut <> '' then
    raise exception '%: nested deeper than 100 levels', field using errcode = 'RL012';
  end if;
end
$body$;

revoke all on function rowlock.canonical, rowlock.fingerprint, rowlock.check_strings, rowlock.check_json from public;
