"""Counters summed up over wider times, so that a month of them is read as fast as an hour."""

_COLUMNS = """tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, kind TEXT NOT NULL, width BIGINT NOT NULL,
        name TEXT NOT NULL, at BIGINT NOT NULL, outcome TEXT NOT NULL, slot INTEGER NOT NULL, count BIGINT NOT NULL,
        sum_ms DOUBLE PRECISION NOT NULL, PRIMARY KEY (tenant_id, kind, width, name, at, outcome, slot)"""
STATEMENTS = [
    """CREATE TABLE tally_mark (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, kind TEXT NOT NULL, width BIGINT NOT NULL,
        until BIGINT NOT NULL, PRIMARY KEY (tenant_id, kind, width))""",
]
ON_SQLITE = [f"CREATE TABLE tally_wide ({_COLUMNS}) WITHOUT ROWID"]
ON_POSTGRESQL = [f"CREATE TABLE tally_wide ({_COLUMNS})"]
