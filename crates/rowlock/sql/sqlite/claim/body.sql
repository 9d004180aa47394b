-- Returns the bodies of the jobs just taken; a job whose body is missing becomes a case.
-- Index: rowlock_job by id.
-- only here: PostgreSQL joins the bodies inside claim/take.sql.
select
  j.id, j.uid, j.kind, j.version, j.queue, j.payload, j.chain, j.position, j.created_at,
  coalesce(j.expires_at <= ?3, 0) as expired, j.group_no, j.group_stops, j.trace
from jsonb_each(?1) t join rowlock_job j on j.id = t.value ->> 'id'
