-- External calls: the intent is stored before the call, the reply after it. An open intent whose lease is gone is in
-- doubt. `doubt` says that an earlier call may have happened. The failure of a later call does not answer that.
create table rowlock.effect (
  no bigint generated always as identity primary key,
  id bigint not null,
  name text not null,
  key text not null,
  state text not null check (state in ('open', 'uncertain', 'replied', 'undone')),
  policy text not null check (policy in ('retry', 'park', 'ask')),
  fingerprint bytea,
  tries int not null,
  doubt boolean not null default false,
  epoch bigint not null,
  worker bigint not null,
  begun_at timestamptz not null,
  deadline_at timestamptz not null,
  ended_at timestamptz,
  reply json,
  error text,
  resolved_by text,
  unique (id, name)
);

create index effect_doubt on rowlock.effect (begun_at) where state in ('open', 'uncertain');

-- Every effect with its job and its doubt. An open intent is in flight while its attempt holds the lease.
create view rowlock.effects as
select
  e.no,
  e.id,
  j.kind,
  j.queue,
  e.name,
  e.key,
  case
    when e.state = 'open' and l.id is null then 'uncertain'
    when e.state = 'open' then 'in flight'
    else e.state
  end as state,
  e.policy,
  e.tries,
  e.epoch,
  e.worker,
  e.begun_at,
  e.deadline_at,
  e.ended_at,
  e.reply,
  e.error,
  e.resolved_by
from rowlock.effect e
left join rowlock.job j on j.id = e.id
left join rowlock.lease l on l.id = e.id and l.epoch = e.epoch and l.worker = e.worker;
