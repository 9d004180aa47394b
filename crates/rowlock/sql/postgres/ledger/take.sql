-- Takes a key of the ledger for this transaction: a row comes back for the first caller. Waits for an open twin.
-- Index: ledger_pkey.
with moment as (select coalesce($5::timestamptz, clock_timestamp()) as at)
insert into rowlock.ledger (key, fingerprint, hold, expires_at, made_at)
select $1, $2, $3, moment.at + $4::bigint * interval '1 microsecond', moment.at from moment
on conflict (key) do nothing
returning made_at, current_setting('transaction_isolation') = 'serializable' as serializable
