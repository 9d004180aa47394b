-- Names the errors of cases, and stores when each error was first and last seen.
-- Index: case_file_pkey, case_error_pkey; writes case_file_error.
with input as materialized (
  select * from unnest($1::bigint[], $2::bigint[], $3::text[], $4::timestamptz[]) as u (id, no, error, at)
), named as (
  update rowlock.case_file c set error_no = i.no from input i where c.id = any (array[i.id]) and c.error_no is null
  returning i.no, i.error, i.at
)
insert into rowlock.case_error as e (no, error, first_seen, last_seen, seen)
select no, min(error), min(at), max(at), count(*) from named group by no order by no
on conflict (no) do update
set first_seen = least(e.first_seen, excluded.first_seen), last_seen = greatest(e.last_seen, excluded.last_seen),
  seen = e.seen + excluded.seen
