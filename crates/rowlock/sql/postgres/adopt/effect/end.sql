-- Stores the reply of a row's external call, only while the claim holds.
-- Index: the table's primary key; ledger_pkey.
-- From then on, the entry is kept as long as keys are kept.
-- only here: tables are adopted on PostgreSQL only.
update rowlock.ledger l set answer = $5::json, hold = 'policy', made_at = coalesce($6::timestamptz, clock_timestamp())
from (select 1 from {table} t where t.{id} = ($1::text)::{id_type} and t.{claim_token} = $2 for share of t) held
where l.key = $3 and l.made_at = $4 and l.answer is null
returning 1
