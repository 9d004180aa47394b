-- Lists the claims that recovery would end, for ending them one by one after the table refused some of them.
-- Index: the table's index of claimed rows.
-- only here: tables are adopted on PostgreSQL only.
select t.{id}::text from {table} t
where not t.{inactive} and t.{claimed_at} < (select coalesce($3::timestamptz, clock_timestamp()) - $1::bigint * interval '1 microsecond')
  and not t.{id}::text = any ($4::text[])
order by t.{claimed_at}
limit $2
