-- Lists the errors of open cases, those with most cases first.
-- Index: rowlock_case_file_error, all of it; rowlock_case_error by no.
select e.no, e.error, g.cases, g.newest, e.first_seen, e.last_seen, e.seen
from (select c.error_no, count(*) as cases, max(c.id) as newest from rowlock_case_file c where c.error_no is not null group by 1) g
join rowlock_case_error e on e.no = g.error_no
order by g.cases desc, e.no limit +?1
