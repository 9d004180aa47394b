-- Lists the rows that a claim would take, for claiming them one by one after the table refused some of them.
-- Index: the table's index of unclaimed rows by due time.
-- only here: tables are adopted on PostgreSQL only.
select t.{id}::text from {table} t
where not t.{inactive} and t.{claimed_at} is null and t.{due} <= (select coalesce($2::timestamptz, clock_timestamp()))
  and not t.{id}::text = any ($3::text[])
order by {order}
limit $1
