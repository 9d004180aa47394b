-- Takes over an entry whose period has passed; no row if another caller did so first.
-- Index: ledger_pkey.
with moment as (select coalesce($5::timestamptz, clock_timestamp()) as at)
update rowlock.ledger
set fingerprint = $2, answer = null, hold = $3, expires_at = moment.at + $4::bigint * interval '1 microsecond', made_at = moment.at
from moment
where key = $1 and ledger.made_at = $6 and ledger.expires_at <= moment.at
returning ledger.made_at, current_setting('transaction_isolation') = 'serializable' as serializable
