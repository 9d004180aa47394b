-- Takes intents back of whose calls somebody found out that they never happened.
-- Index: ledger_pkey.
-- no twin: tables are adopted on PostgreSQL only.
delete from rowlock.ledger where key = any ($1::text[]) and answer is null
