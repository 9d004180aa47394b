-- Lists the errors of open cases, those with most cases first.
-- Index: case_file_error, all of it; case_error_pkey.
select e.no, e.error, g.cases, g.newest, e.first_seen, e.last_seen, e.seen
from (select c.error_no, count(*) as cases, max(c.id) as newest from rowlock.case_file c where c.error_no is not null group by 1) g
join rowlock.case_error e on e.no = g.error_no
order by g.cases desc, e.no limit $1
