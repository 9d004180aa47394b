-- First half of resolving an effect: waits for a call that begins or ends at this moment, so that the second half sees it.
-- Index: effect_pkey.
-- no twin: sqlite resolves under its write lock.
select no from rowlock.effect where no = $1 for update
