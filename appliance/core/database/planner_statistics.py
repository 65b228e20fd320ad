"""Statistics for the planner of a database server, gathered as soon as a table has grown so much that plans may be wrong.

Without them PostgreSQL takes a table that was small when a connection first used it for small, for as long as the connection
lasts: it then checks a foreign key through an index that only begins with the tenant, and reads each row of the tenant.  Its
autovacuum gathers them once a minute, in which a new appliance under load gets ever slower.
"""

from functools import partial

from . import db

MIN_ROWS = 500  # with fewer, the planner prefers to read a whole table, and would go on doing so while it grows
_GROWN = """
SELECT s.relname FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
WHERE s.schemaname = current_schema() AND s.n_live_tup >= ? AND s.n_live_tup >= 1.5 * c.reltuples ORDER BY s.relname
"""


def gather() -> int:
    """On a server: gather the statistics of tables that have grown by half since that was last done; returns how many."""
    tables = [str(table) for (table,) in db.rows(_GROWN, (MIN_ROWS,))]
    for table in tables:
        db.write(partial(db.execute, f'ANALYZE "{table}"'), is_shared=True)
    return len(tables)
