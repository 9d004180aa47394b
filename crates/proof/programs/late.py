"""A worker in Python that is late: it claims, waits to be told, and settles with a business write in one transaction."""

import os
import sys

import psycopg

with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as db:
    worker = db.execute("select rowlock.join_v1('python')").fetchone()[0]
    job = db.execute("select token, payload from rowlock.claim_v1(%s, 'default', %s)", (worker, ["charge"]))
    token, payload = job.fetchone()
    print(token, flush=True)
    sys.stdin.readline()
    try:
        with db.transaction():
            db.execute("update orders set paid = true where id = %s", (payload["order"],))
            db.execute("select rowlock.done_v1(%s)", (token,))
        print("done", flush=True)
    except psycopg.Error as error:
        print(error.sqlstate, error.diag.message_primary, flush=True)
