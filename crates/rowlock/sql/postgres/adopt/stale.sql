-- Which claims recovery would end, where it is to end them one by one: the table refused some of them.
-- Index: the table's own of claimed rows.
-- no twin: tables are adopted on PostgreSQL only.
select t.{id}::text from {table} t
where not t.{inactive} and t.{claimed_at} < (select coalesce($3::timestamptz, clock_timestamp()) - $1::bigint * interval '1 microsecond')
  and not t.{id}::text = any ($4::text[])
order by t.{claimed_at}
limit $2
