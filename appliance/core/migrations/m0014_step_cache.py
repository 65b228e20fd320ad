"""Outputs of steps that are kept for later executions."""

STATEMENTS = [
    """CREATE TABLE step_cache (
        tenant_id TEXT NOT NULL, digest TEXT NOT NULL, process_id TEXT NOT NULL, execution_id TEXT NOT NULL, output TEXT NOT NULL,
        size BIGINT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, digest),
        FOREIGN KEY (tenant_id, process_id) REFERENCES process (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX step_cache_expiry ON step_cache (expires_at)",
    "CREATE INDEX step_cache_process ON step_cache (tenant_id, process_id)",
]
