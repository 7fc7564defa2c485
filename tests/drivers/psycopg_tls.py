"""psycopg with a libpq that connects by direct TLS and cancels over TLS."""

import sys

import psycopg
from cancelling import is_cancelled

with psycopg.connect(sys.argv[1]) as conn:
    assert conn.pgconn.ssl_in_use
    is_cancelled(conn)
print("ok")
