"""Days of which something was counted after they were summed up, and from when on sums of a width are there."""

STATEMENTS = [
    """CREATE TABLE tally_late (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, kind TEXT NOT NULL, at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, kind, at))""",
    "ALTER TABLE tally_mark ADD COLUMN since BIGINT NOT NULL DEFAULT 0",
]
