-- Stores the numbers of the names that a worker serves, for the operator commands in plain SQL.
-- Index: rowlock_name by no.
-- only here: PostgreSQL computes them in rowlock.number_of.
insert or ignore into rowlock_name (no, name) select e.value ->> 0, e.value ->> 1 from json_each(?1) e
