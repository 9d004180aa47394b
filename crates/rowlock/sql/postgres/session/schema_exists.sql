-- Whether a migration was ever run here.
-- Index: none.
select to_regclass('rowlock.migration') is not null
