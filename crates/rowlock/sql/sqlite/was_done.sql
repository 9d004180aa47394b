-- Which of these jobs were done before and had to run once more: they have their next links.
-- Index: rowlock_job by id.
select j.id from json_each(?1) d cross join rowlock_job j on j.id = d.value where j.was_done = 1
