-- Says whether the lease is still there; the write lock is held, so the old connection can no longer commit.
-- Index: rowlock_lease by id.
select id from rowlock_lease where id = ?1 and epoch = ?2 and worker = ?3
