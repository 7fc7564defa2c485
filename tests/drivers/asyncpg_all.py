"""asyncpg through the proxy: it speaks the binary format, uses Flush, and cancels on timeouts."""

import asyncio
import sys

import asyncpg


async def main(uri):
    conn = await asyncpg.connect(uri)
    await conn.execute("create table a(a int primary key, b text, c numeric, d timestamptz default now())")
    async with conn.transaction(isolation="serializable"):
        await conn.execute("insert into a values ($1, $2, $3)", 1, "één", 1.5)
    assert await conn.fetchval("select b from a where a = $1", 1) == "één"
    await conn.executemany("insert into a(a, b) values ($1, $2)", [(n, str(n)) for n in range(2, 500)])
    statement = await conn.prepare("select a from a order by a")
    async with conn.transaction():
        assert [row[0] async for row in statement.cursor(prefetch=50)] == list(range(1, 500))
    copied = await conn.copy_records_to_table("a", records=[(n, "x", None, None) for n in range(500, 600)])
    assert copied == "COPY 100"
    # The driver cancels once only: where the statement has not begun by then, it sleeps to its end.
    try:
        await conn.execute("select pg_sleep(60)", timeout=0.5)
    except asyncio.TimeoutError:
        pass
    else:
        raise AssertionError("no timeout")
    assert await conn.fetchval("select 1") == 1
    heard = asyncio.Queue()
    await conn.add_listener("news", lambda *message: heard.put_nowait(message[3]))
    async with asyncpg.create_pool(uri, min_size=3, max_size=3) as pool:
        await asyncio.gather(*(pool.fetchval("select $1::int", n) for n in range(30)))
        await pool.execute("notify news, 'hello'")
        assert await heard.get() == "hello"
    try:
        await conn.execute("select 1/0")
    except asyncpg.DivisionByZeroError:
        pass
    await conn.close()


asyncio.run(main(sys.argv[1]))
print("ok")
