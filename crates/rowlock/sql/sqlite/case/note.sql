-- Stores the owner and the findings of a case, each if given.
-- Index: rowlock_case_file by id.
update rowlock_case_file set owner = coalesce(?2, owner), note = coalesce(?3, note) where id = ?1
