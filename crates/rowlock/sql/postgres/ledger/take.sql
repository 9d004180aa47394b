-- Takes a ledger key for this transaction, after waiting for a concurrent caller; the first caller gets a row.
-- Index: ledger_pkey.
with moment as (select coalesce($5::timestamptz, clock_timestamp()) as at)
insert into rowlock.ledger (key, fingerprint, hold, expires_at, made_at)
select $1, $2, $3, moment.at + $4::bigint * interval '1 microsecond', moment.at from moment
on conflict (key) do nothing
returning made_at, current_setting('transaction_isolation') = 'serializable' as serializable
