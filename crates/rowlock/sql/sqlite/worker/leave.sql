-- Takes a worker that stopped in good order off the list: marked dead, so that whatever it may still hold is recovered at once.
-- Index: rowlock_worker by id.
update rowlock_worker set dead = 1 where id = ?1 and dead = 0
