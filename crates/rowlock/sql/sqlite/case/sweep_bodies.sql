-- Removes the bodies of cases that were just removed.
-- Index: rowlock_job by id.
-- only here: PostgreSQL removes them inside case/sweep.sql.
delete from rowlock_job where id in (select value from json_each(?1))
returning id, group_no
