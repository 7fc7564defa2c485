// node-postgres through the proxy: simple and prepared queries, transactions, pools, notifications.
const { Client, Pool } = require("pg");
const assert = require("node:assert");

async function main(connectionString) {
  const client = new Client({ connectionString });
  await client.connect();
  await client.query("create table n(a int primary key, b text)");
  await client.query("begin");
  await client.query("insert into n values ($1, $2)", [1, "één"]);
  await client.query("commit");
  const row = await client.query({ name: "by key", text: "select b from n where a = $1", values: [1] });
  assert.equal(row.rows[0].b, "één");
  for (let i = 0; i < 20; i++) {
    await client.query({ name: "by key", text: "select b from n where a = $1", values: [i] });
  }
  const several = await client.query("select 1 as x; select 2 as x");
  assert.deepEqual(several.map((result) => result.rows[0].x), [1, 2]);
  await assert.rejects(client.query("insert into n values (1, 'again')"), { code: "23505" });
  const heard = new Promise((resolve) => client.once("notification", (message) => resolve(message.payload)));
  await client.query("listen news");
  const pool = new Pool({ connectionString, max: 4 });
  const numbers = await Promise.all([...Array(40).keys()].map((i) => pool.query("select $1::int as i", [i])));
  assert.deepEqual(numbers.map((result) => result.rows[0].i), [...Array(40).keys()]);
  await pool.query("notify news, 'hello'");
  assert.equal(await heard, "hello");
  await pool.end();
  await client.end();
  console.log("ok");
}

main(process.argv[2]).catch((error) => {
  console.error(error);
  process.exit(1);
});
