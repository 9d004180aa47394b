-- Takes a worker that stopped in good order off the list: marked dead, so that whatever it may still hold is recovered at once.
-- Index: worker_pkey.
update rowlock.worker set dead = true where id = $1 and not dead
