-- Reports the file's version, journal, size and history, for the `doctor` command.
-- Index: rowlock_outcome by row number, its first entry; else none: reads the header.
select
  sqlite_version() as version,
  (select journal_mode from pragma_journal_mode) as journal,
  (select page_count from pragma_page_count) * (select page_size from pragma_page_size) as bytes,
  (select freelist_count from pragma_freelist_count) * (select page_size from pragma_page_size) as free_bytes,
  coalesce((select (unixepoch() - o.ended_at / 1000000) / 86400 from rowlock_outcome o order by o.rowid limit 1), 0) as history_days
