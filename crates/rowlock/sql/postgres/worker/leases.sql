-- Lists the leases that a worker holds in the database, to find claims whose reply was lost.
-- Index: none; the table is small.
select id, epoch from rowlock.lease where worker = $1
