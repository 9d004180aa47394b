-- Waits for a call of this effect that begins or ends right now: the first half of resolving an effect.
-- Index: effect_pkey.
-- The second half, effect/resolve.sql, then sees that call.
-- only here: SQLite resolves under its write lock.
select no from rowlock.effect where no = $1 for update
