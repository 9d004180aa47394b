-- Lists which of these jobs were done before a re-run and have next links; the links are not made again.
-- Index: job_pkey, job_chain, inside rowlock.has_next.
select j.id from unnest($1::bigint[]) as j (id) where rowlock.has_next(j.id)
