-- Notes the numbers of the names that a worker serves, for the verbs of plain SQL.
-- Index: rowlock_name by no.
-- no twin: postgresql works them out in rowlock.number_of.
insert or ignore into rowlock_name (no, name) select e.value ->> 0, e.value ->> 1 from json_each(?1) e
