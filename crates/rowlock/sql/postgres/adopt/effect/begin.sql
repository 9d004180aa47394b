-- Commits the intent of a row's external call, only while the claim holds and there is no intent yet.
-- Index: the table's primary key; ledger_pkey.
-- Otherwise it returns no row. Retention never removes an intent without a reply, because that call is in doubt.
-- only here: tables are adopted on PostgreSQL only.
insert into rowlock.ledger (key, fingerprint, hold, made_at)
select $3, $5, 'ever', coalesce($4::timestamptz, clock_timestamp())
from (select 1 from {table} t where t.{id} = ($1::text)::{id_type} and t.{claim_token} = $2 for share of t) held
on conflict (key) do nothing
returning made_at
