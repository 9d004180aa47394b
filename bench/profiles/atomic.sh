#!/bin/bash
# What an atomic job costs in SQL alone, with no client of ours: pgbench, 16 clients, 32,000 jobs per line, shapes in turn.
# usage: atomic.sh URL ROUNDS, where URL names a database with the schema in it, on a server that nobody else uses.
#
# bare     begin, update, insert, commit
# settled  the same as a job: begin with its settings and savepoint, update, insert, settle, commit
# linked   that with a next link
# passed   settled, with settle, commit and the next begin in one string; passed-linked with a next link
set -eu
url=$1 rounds=$2 jobs=32000
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

no_link="null"
link="'{\"uid\": \"8b1e6a0a-0000-4000-8000-00000000000a\", \"kind\": \"book\", \"kind_no\": 1, \"version\": 1, \"queue\": \"default\", \"queue_no\": 1, \"priority\": 1, \"attempts_max\": 5, \"payload\": \"{}\", \"chain\": :id, \"position\": 1, \"delay_us\": 0}'"
vars='\set account random(0, 9999)
\set id :client_id * 10000 + :seq
\set seq :seq + 1'
work_sql='update bench_account set total = total + 1 where id = :account;
insert into bench_entry values (:id, :account);'
open="begin isolation level read committed\\; set local lock_timeout = 5000\\; set local idle_in_transaction_session_timeout = 5000\\; set local rowlock_tx.marker = 'm'\\; savepoint rowlock"
settle() { echo "select rowlock.settle_done(:id, 1, 1, 'm', null, null, $1, null)"; }

printf '%s\n' "$vars" "begin;" "$work_sql" "commit;" > "$work/bare"
printf '%s\n' "$vars" "$open;" "$work_sql" "$(settle "$no_link");" "commit;" > "$work/settled"
printf '%s\n' "$vars" "$open;" "$work_sql" "$(settle "$link");" "commit;" > "$work/linked"
passed() {
  # A script of pgbench may not end inside a transaction.
  echo "$open;"
  for _ in {1..20}; do printf '%s\n' "$vars" "$work_sql" "$(settle "$1")\\; commit\\; $open;"; done
  echo "commit;"
}
passed "$no_link" > "$work/passed"
passed "$link" > "$work/passed-linked"

psql "$url" -q <<'SQL'
create table if not exists bench_account (id bigint primary key, total bigint not null);
create table if not exists bench_entry (job bigint not null, account bigint not null);
insert into bench_account select g, 0 from generate_series(0, 9999) g on conflict do nothing;
SQL

# CPU time of the postmaster and all that are or were its children, in hundredths of a second.
ticks() {
  local helper main
  helper=$(psql "$url" -Atc "select pid from pg_stat_activity where backend_type = 'checkpointer'")
  main=$(ps -o ppid= -p "$helper" | tr -d ' ')
  { awk '{ print $14 + $15 + $16 + $17 }' "/proc/$main/stat"
    for child in $(ps -o pid= --ppid "$main"); do awk '{ print $14 + $15 }' "/proc/$child/stat" 2>/dev/null || true; done
  } | awk '{ n += $1 } END { print n }'
}

for _ in $(seq "$rounds"); do
  for shape in bare settled linked passed passed-linked; do
    per=1
    case $shape in passed*) per=20 ;; esac
    psql "$url" -q <<'SQL'
truncate rowlock.lease;
insert into rowlock.lease select g, 1, 1, 1, 5, 1, 1, false, 0, now() from generate_series(1, 170000) g;
vacuum analyze rowlock.lease;
checkpoint;
SQL
    from=$(ticks)
    PGOPTIONS="-c rowlock_tx.marker=m" pgbench -n -M simple -D seq=1 -c 16 -j 2 -t $((jobs / 16 / per)) -f "$work/$shape" "$url" > "$work/said" 2>&1
    to=$(ticks)
    awk -v shape=$shape -v per=$per -v us=$(((to - from) * 10000 / jobs)) \
      '/^tps/ { printf "%-14s %6.0f jobs/s  server %4.0f us/job\n", shape, $3 * per, us }' "$work/said"
  done
done
