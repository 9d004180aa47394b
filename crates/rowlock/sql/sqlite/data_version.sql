-- A number that differs from the last look when any other connection committed in between.
-- Index: none; reads the shared header only. Twin of notify.sql: SQLite has nothing that calls.
pragma data_version
