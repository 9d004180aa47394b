-- Lists what a worker holds by the database's word, to find claims whose reply was lost.
-- Index: none; the table is small.
select id, epoch from rowlock.lease where worker = $1
