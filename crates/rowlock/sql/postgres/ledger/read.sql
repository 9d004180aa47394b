-- Returns the ledger entry of a key.
-- Index: ledger_pkey.
-- It is a separate statement, so its snapshot is newer than the concurrent caller that was waited for.
select fingerprint, answer::text as answer, made_at,
  coalesce(expires_at <= coalesce($2::timestamptz, clock_timestamp()), false) as over
from rowlock.ledger where key = $1
