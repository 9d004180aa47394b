-- Which rows a claim would take, where it is to take them one by one: the table refused some of them.
-- Index: the table's own of rows that nobody has, by due time.
-- no twin: tables are adopted on PostgreSQL only.
select t.{id}::text from {table} t
where not t.{inactive} and t.{claimed_at} is null and t.{due} <= (select coalesce($2::timestamptz, clock_timestamp()))
  and not t.{id}::text = any ($3::text[])
order by {order}
limit $1
