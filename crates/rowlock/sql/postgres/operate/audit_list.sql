-- Lists what operators did, newest first, filtered by job, actor and entry number, each if given.
-- Index: audit_pkey from its end, or audit_id where a job is named.
select no, at, actor, verb, id, detail, jobs, before, after
from rowlock.audit
where ($1::bigint is null or id = $1) and ($2::text is null or actor = $2) and ($3::bigint is null or no < $3)
order by no desc
limit $4
