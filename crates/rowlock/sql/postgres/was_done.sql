-- Which of these jobs were done before and had to run once more: they have their next links.
-- Index: job_pkey.
select id from rowlock.job where id = any ($1::bigint[]) and was_done
