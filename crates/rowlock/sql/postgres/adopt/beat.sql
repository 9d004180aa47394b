-- Renews the claims whose tokens still hold; returns which tokens hold and which claims it renewed.
-- Index: the table's primary key.
-- A row that its own handler has locked keeps its time. Recovery skips such a row too.
-- only here: tables are adopted on PostgreSQL only.
with mine as materialized (
  select u.id::{id_type} as id, u.token from unnest($1::text[], $2::uuid[]) as u (id, token)
), free as materialized (
  select t.{id} as id from mine m join {table} t on t.{id} = m.id and t.{claim_token} = m.token
  for no key update of t skip locked
), renewed as (
  update {table} t set {claimed_at} = coalesce($3::timestamptz, clock_timestamp()) from free f where t.{id} = f.id
  returning t.{claim_token} as token
)
select m.token, r.token is not null as renewed
from mine m
join {table} t on t.{id} = m.id and t.{claim_token} = m.token
left join renewed r on r.token = m.token
