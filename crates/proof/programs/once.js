// Takes a key and stores its answer: the slot goes through the driver's own kind of time and back.

const { Client } = require("pg");

async function main() {
  const db = new Client({ connectionString: process.env.DATABASE_URL });
  await db.connect();
  for (const answer of [7, 8]) {
    await db.query("begin");
    const taken = (await db.query("select is_first, answer, slot from rowlock.once_v1($1, $2)", ["hook:1", { a: 1 }])).rows[0];
    if (taken.is_first) await db.query("select rowlock.answer_v1($1, $2, $3)", ["hook:1", taken.slot, answer]);
    await db.query("commit");
    console.log(taken.is_first, taken.answer, taken.slot !== null);
  }
  await db.end();
}

main();
