-- Marks a group as paused, or as going on: while it is paused, its turn is passed to nobody.
-- Index: job_group_pkey.
insert into rowlock.job_group as g (no, head, paused) values ($1, null, $2)
on conflict (no) do update set paused = excluded.paused
