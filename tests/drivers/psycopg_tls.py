"""psycopg with a libpq that connects by direct TLS and cancels over TLS."""

import sys
import threading

import psycopg

with psycopg.connect(sys.argv[1]) as conn:
    assert conn.pgconn.ssl_in_use
    done = threading.Event()

    def repeat():
        while not done.wait(0.1):
            conn.cancel_safe()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        conn.execute("select pg_sleep(300)")
    except psycopg.errors.QueryCanceled:
        pass
    else:
        raise AssertionError("not cancelled")
    finally:
        done.set()
        thread.join()
