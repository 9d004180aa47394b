-- A number that differs from the last look when any other connection committed in between.
-- Index: none; reads the shared header only.
-- no twin: postgresql calls its listeners, see session/notify.sql.
pragma data_version
