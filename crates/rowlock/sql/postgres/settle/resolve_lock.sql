-- Waits for the old backend, then says whether the lease is still there.
-- Index: lease_pkey.
-- This is the first half of resolving an unknown commit.
select id from rowlock.lease where id = $1 and epoch = $2 and worker = $3 for update
