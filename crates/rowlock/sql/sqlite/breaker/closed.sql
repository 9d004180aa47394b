-- Lists which of these breakers are closed.
-- Index: rowlock_breaker by name.
-- only here: PostgreSQL locks and checks the breakers in the claim itself.
select b.name from rowlock_breaker b where b.state = 'closed' and b.name in (select value from json_each(?1))
