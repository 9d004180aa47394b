-- Lists which of these jobs were done before a re-run and have next links; the links are not made again.
-- Index: rowlock_job by id, rowlock_job_chain.
select j.id
from json_each(?1) d cross join rowlock_job j on j.id = d.value
where j.was_done = 1 and exists (
  select 1 from rowlock_job x
  where x.chain = coalesce(j.chain, j.id) and x.position = j.position + 1
    and x.uid is not case when json_valid(j.if_retired) then json_extract(j.if_retired, '$.uid') end
)
