-- The numbers that names have in the narrow tables, for every queue and kind that a worker has ever served. SQLite
-- cannot compute these numbers itself.
create table rowlock_name (
  no integer primary key,
  name text not null
) strict;

-- Operator commands as plain SQL: insert into rowlock_verb (verb, id, actor) values ('cancel', 42, 'ann'). Each command
-- does what it says or refuses, and is recorded in the audit. `at` is when a delayed job is due; without `at` the job
-- is due now. `target` is what is paused or resumed: queue:mail, kind:send-mail or group:account:42. The columns after
-- `target` are reserved for the library.
create view rowlock_verb as
select
  '' as verb, 0 as id, '' as actor, null as at, null as reason, null as target, null as now, null as queue_no, null as kind_no
where 0;

-- The triggers use these rows to call each other: to end a lease, to pass the turn of a group on, and to end a job for
-- an operator. The caller that inserts a row has checked the request.
create view rowlock_end as
select 0 as id, '' as outcome, '' as place, 0 as delay_us, null as error, null as result, 0 as now
where 0;

create view rowlock_turn as
select 0 as no, 0 as head, 0 as now
where 0;

create view rowlock_by_hand as
select 0 as id, '' as verb, '' as outcome, '' as said, null as reason, '' as actor, 0 as now
where 0;
