-- Notes on a case whose it is and what was found out, each where given.
-- Index: rowlock_case_file by id.
update rowlock_case_file set owner = coalesce(?2, owner), note = coalesce(?3, note) where id = ?1
