-- Whether the lease is still there. The write lock is held, so no commit of the old connection can still come.
-- Index: rowlock_lease by id.
select id from rowlock_lease where id = ?1 and epoch = ?2 and worker = ?3
