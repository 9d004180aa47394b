-- Lists the external calls of a row since it last went on, each with its intent or its reply.
-- Index: ledger_pkey; the keys of a row begin with $1, which ends in a colon.
-- only here: tables are adopted on PostgreSQL only.
select l.key from rowlock.ledger l
where l.key >= $1::text and l.key < left($1, -1) || ';'
  and l.made_at > coalesce((select k.made_at from rowlock.ledger k where k.key = $2), timestamptz '-infinity')
order by l.key
