-- Moves one row of the caller's own table from one status to another; no row moved means that somebody did it already.
-- Index: the table's own, on its id. The names and texts below stand for the caller's, which are checked, quoted and put in their place.
update rowlock.setting as own set value = 'to_status' where own.name = 'row_id' and own.value = 'from_status'
