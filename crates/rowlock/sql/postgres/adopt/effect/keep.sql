-- Marks when a row that has made external calls went on.
-- Index: ledger_pkey; the keys of a row's calls begin with $1, which ends in a colon.
-- Calls before the mark belong to an occasion that is over.
-- only here: tables are adopted on PostgreSQL only.
insert into rowlock.ledger (key, hold, made_at)
select $2, 'policy', coalesce($3::timestamptz, clock_timestamp())
where exists (select from rowlock.ledger l where l.key >= $1::text and l.key < left($1, -1) || ';')
on conflict (key) do update set made_at = excluded.made_at
