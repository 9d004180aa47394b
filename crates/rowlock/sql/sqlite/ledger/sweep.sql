-- Removes those of the given ledger entries whose hold is over.
-- Index: the primary key of rowlock_ledger.
delete from rowlock_ledger
where key in (select value from json_each(?1))
  and ((hold = 'period' and expires_at <= ?2) or (hold = 'policy' and made_at < ?3))
