-- What has run here. Row 1 is the base, row 0 the functions. The hash is that of the text, the release that of the
-- binary that ran it. A binary whose schema number is below `oldest` does not work here any more.
create table rowlock_migration (
  version integer primary key,
  name text not null,
  oldest integer not null,
  hash text not null default '',
  release text not null default '',
  applied_at integer not null default (cast(round(unixepoch('subsec') * 1000) as integer) * 1000)
) strict;
