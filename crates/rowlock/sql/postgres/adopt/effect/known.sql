-- Returns what is known about a row's external call, and whether the claim holds.
-- Index: the table's primary key; ledger_pkey.
-- only here: tables are adopted on PostgreSQL only.
select
  l.made_at, l.answer::text as answer, l.fingerprint,
  exists (select from {table} t where t.{id} = ($1::text)::{id_type} and t.{claim_token} = $2) as held
from (select 1) one left join rowlock.ledger l on l.key = $3
