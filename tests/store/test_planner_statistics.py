"""A new database on a server knows its tables' sizes before not knowing them costs anybody time."""

import psycopg

from appliance.core.database.planner_statistics import MIN_ROWS, gather
from tests.store.conftest import on_server

SCANS = "SELECT indexrelname, idx_scan FROM pg_stat_user_indexes WHERE relname = 'book'"
UNTENDED = "WITH (autovacuum_enabled = off)"


def make_tables(connection: psycopg.Connection) -> None:
    """`page` refers to `book`, which is so wide that its planner expects few rows, which all indexes find at the same cost."""
    rest = ", ".join(f"c{number} TEXT" for number in range(40))
    columns = f"tenant_id TEXT, id TEXT, at BIGINT, {rest}, PRIMARY KEY (tenant_id, id)"
    connection.execute(f"CREATE TABLE book ({columns}) {UNTENDED}".encode())
    connection.execute("CREATE INDEX book_newest ON book (tenant_id, at, id)")
    key = "FOREIGN KEY (tenant_id, book_id) REFERENCES book (tenant_id, id)"
    connection.execute(f"CREATE TABLE page (tenant_id TEXT, book_id TEXT, {key}) {UNTENDED}".encode())


def scan(connection: psycopg.Connection, numbers: range) -> set[str]:
    """Insert books with a page each; the indexes of books by which their foreign keys have been checked."""

    def count() -> dict[str, int]:
        connection.execute("SELECT pg_stat_force_next_flush()")
        return dict(connection.execute(SCANS).fetchall())

    before = count()
    for number in numbers:
        connection.execute("INSERT INTO book (tenant_id, id, at) VALUES ('acme', %s, %s)", (f"b{number:05}", number))
        connection.execute("INSERT INTO page (tenant_id, book_id) VALUES ('acme', %s)", (f"b{number:05}",))
    return {index for index, scans in count().items() if scans > before[index]}


@on_server
def test_foreign_keys_are_checked_by_the_primary_key_as_soon_as_the_size_of_a_table_is_known(server: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        make_tables(connection)
        scan(connection, range(MIN_ROWS - 1))
        assert gather() == 0  # too few to matter
        assert scan(connection, range(MIN_ROWS, MIN_ROWS + 10)) == {"book_newest"}  # reads all books of the tenant each time
        assert gather() == 2
        assert gather() == 0
        assert scan(connection, range(1_000, 1_000 + MIN_ROWS // 2)) == {"book_pkey"}
        assert gather() == 0  # a table that changes is left to the server until it has grown by half
        scan(connection, range(2_000, 2_010))
        assert gather() == 2
