-- Begins groups, each with the first of its jobs as its head; waits for whoever is about to do the same, and leaves alone what is there by then.
-- Index: job_group_pkey, in sorted order.
-- no twin: sqlite decides under its write lock, inside enqueue/grouped_head.sql.
insert into rowlock.job_group (no, head)
select u.no, u.id from unnest($1::bigint[], $2::bigint[]) as u (no, id) order by u.no
on conflict (no) do nothing
returning no
