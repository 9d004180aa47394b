-- Marks a group as paused, or as going on: while it is paused, its turn is passed to nobody.
-- Index: rowlock_job_group by no.
insert into rowlock_job_group (no, head, paused) values (?1, null, ?2)
on conflict (no) do update set paused = excluded.paused
