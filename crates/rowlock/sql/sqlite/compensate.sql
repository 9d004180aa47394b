-- The compensating jobs of jobs that were just retired, as the next link of their chain, for enqueue.sql to insert.
-- Index: rowlock_job by id, rowlock_case_file by id.
select j.id, j.if_retired, coalesce(j.chain, j.id) as chain, j.position + 1 as position
from json_each(?1) r
cross join rowlock_job j on j.id = r.value
join rowlock_case_file c on c.id = j.id
where j.if_retired is not null
order by r.key
