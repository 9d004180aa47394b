-- Which of these jobs were done before they were re-run, and have next links since then: they are not made again.
-- Index: job_pkey, job_chain.
select j.id
from rowlock.job j
where j.id = any ($1::bigint[]) and j.was_done and exists (
  select from rowlock.job x
  where x.chain = coalesce(j.chain, j.id) and x.position = j.position + 1
    and x.uid is distinct from (j.if_retired ->> 'uid')::uuid
)
