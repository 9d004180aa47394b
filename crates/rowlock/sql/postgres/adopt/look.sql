-- Returns the state of a row after a commit without a reply, once no other transaction has the row locked.
-- Index: the table's primary key.
-- only here: tables are adopted on PostgreSQL only.
select t.{claim_token} is not distinct from $2::uuid as held, t.{claim_token} is null as free, t.{inactive} as inactive, t.{last_error} as error
from {table} t where t.{id} = ($1::text)::{id_type}
for update
