-- Removes cases retired before the given time, with their bodies and effects, a bounded number per call.
-- Index: case_file_pkey, all of it (cases are few); effect_id_name_key, job_pkey, job_group_pkey.
-- It keeps every case with an effect in doubt, also if the effect belongs to an adopted row.
with old as materialized (
  select c.id from rowlock.case_file c
  where c.retired_at < $1
    and not exists (select from rowlock.effect e where e.id = c.id and e.state in ('open', 'uncertain'))
    -- The doubts of an adopted row are in the ledger, and its case names them.
    and not exists (
      select from rowlock.job j where j.id = c.id and j.kind = 'rowlock.adopted-row' and j.payload -> 'doubts' is not null
    )
  limit $2
), gone as (
  delete from rowlock.case_file c using old o where c.id = o.id
  returning c.id
), bodies as (
  delete from rowlock.job j using gone g where j.id = g.id
  returning j.id, j.group_no
), turns as (
  -- A group that a case has stopped goes on when the case is removed. The sweep of groups passes its turn on.
  update rowlock.job_group g set head = null from bodies b where g.no = b.group_no and g.head = b.id
), effects as (
  delete from rowlock.effect e using gone g where e.id = g.id
)
select count(*) from gone
