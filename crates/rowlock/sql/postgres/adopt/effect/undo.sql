-- Removes the intents of external calls that never happened, as an operator found out.
-- Index: ledger_pkey.
-- only here: tables are adopted on PostgreSQL only.
delete from rowlock.ledger where key = any ($1::text[]) and answer is null
