-- Removes the intent of a row's external call that did not happen, only while the claim holds.
-- Index: the table's primary key; ledger_pkey.
-- It removes no other intent of that key.
-- only here: tables are adopted on PostgreSQL only.
delete from rowlock.ledger l
using (select 1 from {table} t where t.{id} = ($1::text)::{id_type} and t.{claim_token} = $2 for share of t) held
where l.key = $3 and l.made_at = $4 and l.answer is null
