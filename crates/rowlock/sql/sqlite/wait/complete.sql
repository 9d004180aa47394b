-- Completes a name once; no row if the name was completed before.
-- Index: rowlock_completion by name.
insert into rowlock_completion (name, answer, completed_at) values (?1, ?2, ?3)
on conflict (name) do nothing
returning name
