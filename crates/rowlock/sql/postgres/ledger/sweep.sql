-- Removes those of the given ledger entries whose hold is over; skips those that a transaction is about to take.
-- Index: ledger_pkey.
with old as materialized (
  select l.key
  from rowlock.ledger l
  where l.key = any ($1::text[])
    and ((l.hold = 'period' and l.expires_at <= $2) or (l.hold = 'policy' and l.made_at < $3))
  for update skip locked
)
delete from rowlock.ledger l using old o where l.key = o.key
