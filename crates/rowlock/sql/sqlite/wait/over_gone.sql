-- Removes the waits that just ended by their limit.
-- Index: rowlock_waiting by id.
-- only here: PostgreSQL removes them inside wait/over.sql.
delete from rowlock_waiting where id in (select v.value ->> 'id' from json_each(?1) v)
