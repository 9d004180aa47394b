-- Takes over an entry whose period has passed; no row if another caller did so first.
-- Index: rowlock_ledger by key.
update rowlock_ledger
set fingerprint = ?2, answer = null, hold = ?3, expires_at = ?5 + ?4, made_at = ?5
where key = ?1 and made_at = ?6 and expires_at <= ?5
returning made_at
