"""psycopg 3 through the proxy: sync, async, pipeline mode, copy, cancel, notifications, protocol 3.2."""

import asyncio
import sys

import psycopg
from cancelling import is_cancelled

uri = sys.argv[1]
newer = len(sys.argv) > 2 and sys.argv[2] == "3.2"
if newer:
    uri += "?min_protocol_version=3.2&max_protocol_version=latest"


def sync():
    with psycopg.connect(uri, prepare_threshold=1) as conn:
        conn.execute("create table p(a int primary key, b text)")
        with conn.transaction():
            conn.execute("insert into p values (%s, %s)", (1, "één"))
        assert conn.execute("select b from p where a = %s", (1,)).fetchone() == ("één",)
        assert conn.execute("select %s::bytea", (b"\0\xff",), binary=True).fetchone() == (b"\0\xff",)
        for n in range(5):
            assert conn.execute("select %s + 1", (n,)).fetchone() == (n + 1,)
        try:
            with conn.transaction():
                conn.execute("insert into p values (1, 'again')")
        except psycopg.errors.UniqueViolation as error:
            assert "already exists" in str(error)
        else:
            raise AssertionError("no error")
        with conn.cursor() as cur:
            with cur.copy("copy p from stdin") as copy:
                for n in range(2, 1002):
                    copy.write_row((n, "x" * 100))
            with cur.copy("copy p to stdout") as copy:
                assert len(list(copy.rows())) == 1001
        with conn.cursor(name="server side") as cur:
            cur.itersize = 100
            cur.execute("select * from p")
            assert len(cur.fetchall()) == 1001
        assert conn.info.server_version >= 100000


def pipeline():
    with psycopg.connect(uri) as conn, conn.pipeline():
        cursors = [conn.execute("select %s::int", (n,)) for n in range(200)]
        assert [cur.fetchone()[0] for cur in cursors] == list(range(200))
    with psycopg.connect(uri, autocommit=True) as conn:
        try:
            with conn.pipeline():
                conn.execute("select 1")
                conn.execute("select broken")
                conn.execute("select 2")
        except psycopg.errors.UndefinedColumn:
            pass
        else:
            raise AssertionError("no error")
        assert conn.execute("select 3").fetchone() == (3,)


def cancel():
    with psycopg.connect(uri) as conn:
        if newer:
            assert conn.pgconn.full_protocol_version == 30002
        is_cancelled(conn)


async def asynchronous():
    async with await psycopg.AsyncConnection.connect(uri, autocommit=True) as conn:
        await conn.execute("listen news")
        async with await psycopg.AsyncConnection.connect(uri, autocommit=True) as other:
            await other.execute("notify news, 'hello'")
        async for notification in conn.notifies():
            assert notification.payload == "hello"
            break
        async with conn.pipeline():
            cursors = [await conn.execute("select %s::text", (str(n),)) for n in range(50)]
            assert [(await cur.fetchone())[0] for cur in cursors] == [str(n) for n in range(50)]

    async def one(n):
        async with await psycopg.AsyncConnection.connect(uri) as conn:
            cur = await conn.execute("select %s::int", (n,))
            return (await cur.fetchone())[0]

    assert await asyncio.gather(*(one(n) for n in range(10))) == list(range(10))


sync()
pipeline()
cancel()
asyncio.run(asynchronous())
print("ok")
