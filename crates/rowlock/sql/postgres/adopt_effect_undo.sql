-- Takes an intent back whose call did not happen, or that somebody found out never did.
-- Index: ledger_pkey.
-- no twin: tables are adopted on PostgreSQL only.
delete from rowlock.ledger where key = any ($1::text[]) and answer is null
