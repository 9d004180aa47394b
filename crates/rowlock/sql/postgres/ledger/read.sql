-- What the ledger holds under a key, in a statement of its own: its snapshot is newer than the twin that was waited for.
-- Index: ledger_pkey.
select fingerprint, answer::text as answer, made_at,
  coalesce(expires_at <= coalesce($2::timestamptz, clock_timestamp()), false) as over
from rowlock.ledger where key = $1
