-- First half of resolving an unknown commit: waits for the old backend, then says whether the lease is still there.
-- Index: lease_pkey.
select id from rowlock.lease where id = $1 and epoch = $2 and worker = $3 for update
