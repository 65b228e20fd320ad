"""What somebody switched off at once, and why."""

STATEMENTS = [
    """CREATE TABLE kill_switch (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, integration_id TEXT NOT NULL,
        reason TEXT NOT NULL, set_by TEXT NOT NULL, set_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, integration_id))""",
]
