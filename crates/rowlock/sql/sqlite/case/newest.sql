-- When the newest open case was retired.
-- Index: none; reads all open cases once.
select max(retired_at) from rowlock_case_file
