-- Who may be in the body of work under a key. A row holds only while the lease of its token does.
create table rowlock_body_lock (
  key text not null,
  slot integer not null,
  id integer not null,
  epoch integer not null,
  worker integer not null,
  taken_at integer not null,
  primary key (key, slot)
) strict;
