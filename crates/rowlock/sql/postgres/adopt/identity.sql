-- Gives an adopted table the random name that the keys of its effects derive from, once and for ever; ledger/read.sql says which it is.
-- Index: ledger_pkey.
-- no twin: tables are adopted on PostgreSQL only.
insert into rowlock.ledger (key, answer, hold, made_at)
values ($1, to_json($2::text), 'ever', clock_timestamp())
on conflict (key) do nothing
