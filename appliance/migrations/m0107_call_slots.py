"""Concurrent calls of an integration are counted in rows, for all processes on one server; on SQLite the table stays empty."""

STATEMENTS = [
    """CREATE TABLE integration_slot (
        tenant_id TEXT NOT NULL, id TEXT NOT NULL, integration_id TEXT NOT NULL, granted INTEGER NOT NULL,
        created_at BIGINT NOT NULL, owner TEXT NOT NULL, until BIGINT NOT NULL, PRIMARY KEY (tenant_id, id),
        FOREIGN KEY (tenant_id, integration_id) REFERENCES integration (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX integration_slot_of ON integration_slot (tenant_id, integration_id)",
]
