// A worker in Node that is late: it claims, waits to be told, and settles with a business write in one transaction.

const { Client } = require("pg");
const { once } = require("node:events");

async function main() {
  const db = new Client({ connectionString: process.env.DATABASE_URL });
  await db.connect();
  const worker = (await db.query("select rowlock.join_v1('node') as worker")).rows[0].worker;
  const claim = "select token, payload from rowlock.claim_v1($1, 'default', $2)";
  const { token, payload } = (await db.query(claim, [worker, ["charge"]])).rows[0];
  console.log(token);
  await once(process.stdin, "data");
  process.stdin.destroy();
  try {
    await db.query("begin");
    await db.query("update orders set paid = true where id = $1", [payload.order]);
    await db.query("select rowlock.done_v1($1)", [token]);
    await db.query("commit");
    console.log("done");
  } catch (error) {
    await db.query("rollback");
    console.log(error.code, error.message);
  }
  await db.end();
}

main();
