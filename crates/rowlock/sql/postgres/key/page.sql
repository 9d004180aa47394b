-- Lists the next enqueue keys of one hold that were made before the given time, oldest first, for the sweep.
-- Index: job_key_made.
select key, id, made_at
from rowlock.job_key
where hold = $1 and made_at < $2 and (made_at, key) > ($3, $4)
order by made_at, key limit $5
