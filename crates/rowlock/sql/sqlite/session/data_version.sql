-- Returns a number that changes when another connection commits.
-- Index: none; reads the shared header only.
-- only here: PostgreSQL notifies its listeners, see session/notify.sql.
pragma data_version
