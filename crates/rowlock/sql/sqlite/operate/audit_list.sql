-- Lists what operators did, newest first, filtered by job, actor and entry number, each if given.
-- Index: the primary key from its end.
select no, at, actor, verb, id, detail, jobs, before, after
from rowlock_audit
where (?1 is null or id = ?1) and (?2 is null or actor = ?2) and (?3 is null or no < ?3)
order by no desc
limit ?4
