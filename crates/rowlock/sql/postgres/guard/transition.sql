-- Moves one row of the caller's table from one status to another; no row moved means that it was moved before.
-- Index: the table's index on its id. The names and texts below are placeholders: the caller's are checked, quoted and
-- put in their place.
update rowlock.setting as own set value = 'to_status' where own.name = 'row_id' and own.value = 'from_status'
