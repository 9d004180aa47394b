-- Gives an adopted table its permanent random name, once; the keys of its effects derive from that name.
-- Index: ledger_pkey.
-- ledger/read.sql returns the name.
-- only here: tables are adopted on PostgreSQL only.
insert into rowlock.ledger (key, answer, hold, made_at)
values ($1, to_json($2::text), 'ever', clock_timestamp())
on conflict (key) do nothing
