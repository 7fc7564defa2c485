"""What the programs for psycopg share."""

import threading

import psycopg


def is_cancelled(conn):
    """A statement that would take minutes is cancelled from another thread, again and again until it ends."""
    done = threading.Event()

    def repeat():
        while not done.wait(0.1):
            try:
                conn.cancel_safe(timeout=60)
            except psycopg.Error as error:
                print("one cancel request failed:", error)

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
