-- Returns the ledger entry of a key.
-- Index: rowlock_ledger by key.
select fingerprint, answer, made_at, coalesce(expires_at <= ?2, false) as over
from rowlock_ledger where key = ?1
