-- What has run here. Row 1 is the base, 0 the functions; the hash says of which text, the release which binary ran it. A binary
-- that speaks less than `oldest` does not work here any more.
create table rowlock_migration (
  version integer primary key,
  name text not null,
  oldest integer not null,
  hash text not null default '',
  release text not null default '',
  applied_at integer not null default (cast(round(unixepoch('subsec') * 1000) as integer) * 1000)
) strict;
