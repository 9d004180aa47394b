-- The protocol for every language: what happens once, with its answer.

-- Takes a key for work that happens once, in the caller's transaction. The first caller learns that it is the first,
-- does the work, and stores its answer under the slot in the same transaction. Every repeat gets that answer. It waits
-- for a concurrent caller. RL003 if the key was taken for another request.
create or replace function rowlock.once_v1(
  key text, request json default null, options json default '{}', out is_first boolean, out answer json, out slot timestamptz
)
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  -- In milliseconds: some drivers carry no finer time, and the slot must come back unchanged.
  now constant timestamptz := date_trunc('milliseconds', clock_timestamp());
  wanted constant text := rowlock.key_option(json_build_object('key', once_v1.key), 'key');
  given constant json := rowlock.check_strings('options', coalesce(options, '{}'));
  hold_ms constant bigint := rowlock.number_option(given, 'hold_ms', null, 1, 3162240000000);
  hold_for constant text := coalesce(given ->> 'hold', case when hold_ms is null then 'policy' else 'period' end);
  print bytea;
  held record;
begin
  perform rowlock.check_options(given, array['hold', 'hold_ms']);
  if request is not null then
    perform rowlock.check_json('request', request);
    print := rowlock.fingerprint('once', request);
  end if;
  if wanted is null then
    raise exception 'key: missing; give one' using errcode = 'RL012';
  end if;
  if hold_for not in ('policy', 'ever', 'period') or (hold_for = 'period') <> (hold_ms is not null) then
    raise exception 'hold: "%" is not valid; use policy or ever, or hold_ms alone', left(hold_for, 40) using errcode = 'RL012';
  end if;
  is_first := true;
  for round in 1..50 loop
    insert into rowlock.ledger (key, fingerprint, hold, expires_at, made_at)
    values (wanted, print, hold_for, now + hold_ms * interval '1 millisecond', now)
    on conflict on constraint ledger_pkey do nothing
    returning made_at into slot;
    exit when found;
    select l.fingerprint, l.answer, l.made_at, coalesce(l.expires_at <= now, false) as over into held
    from rowlock.ledger l where l.key = wanted;
    -- The entry was removed meanwhile.
    continue when not found;
    if held.over then
      update rowlock.ledger l
      set fingerprint = print, answer = null, hold = hold_for, expires_at = now + hold_ms * interval '1 millisecond', made_at = now
      where l.key = wanted and l.made_at = held.made_at and l.expires_at <= now
      returning l.made_at into slot;
      exit when found;
      continue;
    end if;
    if print is not null and held.fingerprint is not null and held.fingerprint <> print then
      raise exception 'key "%" is already used by a different request', wanted using errcode = 'RL003';
    end if;
    -- Only the first caller has a slot.
    is_first := false;
    answer := held.answer;
    return;
  end loop;
  if slot is null then
    raise exception 'key "%" keeps changing; try again', wanted using errcode = '40001';
  end if;
  -- What this transaction took, for answer_v1. It is undone with the transaction, or with the savepoint that is rolled
  -- back.
  perform set_config(
    'rowlock_tx.once', coalesce(nullif(current_setting('rowlock_tx.once', true), ''), ',') || rowlock.number_of(wanted) || ',', true);
end
$body$;

-- Stores the answer that every repeat will get, in the transaction that took the key.
create or replace function rowlock.answer_v1(key text, slot timestamptz, answer json) returns void
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
begin
  perform rowlock.check_json('answer', answer_v1.answer);
  update rowlock.ledger l set answer = answer_v1.answer
  where l.key = answer_v1.key and l.made_at = answer_v1.slot
    and position(',' || rowlock.number_of(answer_v1.key) || ',' in current_setting('rowlock_tx.once', true)) > 0;
  if not found then
    raise exception 'the ledger has no entry "%" of this transaction; store the answer in the transaction that took the key', key
      using errcode = 'RL010';
  end if;
end
$body$;

revoke all on function rowlock.once_v1, rowlock.answer_v1 from public;
