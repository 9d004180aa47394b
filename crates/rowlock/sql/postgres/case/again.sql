-- Returns the newest case of an error retired after the given time, or 0 if it is closed; no row if there was none.
-- Index: case_error_pkey; case_file_error, only if there was one.
select coalesce((select max(c.id) from rowlock.case_file c where c.error_no = $1 and c.retired_at > $2), 0)
from rowlock.case_error e where e.no = $1 and e.last_seen > $2
