-- Creates groups, each with the first of its jobs as its head.
-- Index: job_group_pkey, in sorted order.
-- It waits for transactions that are about to create the same groups. It does not change a group that exists by then.
-- only here: SQLite decides under its write lock, inside enqueue/grouped_head.sql.
insert into rowlock.job_group (no, head)
select u.no, u.id from unnest($1::bigint[], $2::bigint[]) as u (no, id) order by u.no
on conflict (no) do nothing
returning no
