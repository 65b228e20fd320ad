"""Triggers of published processes: how each stands, what it listens for, and every time it fired."""

STATEMENTS = [
    """CREATE TABLE trigger_state (
        tenant_id TEXT NOT NULL, process_id TEXT NOT NULL, trigger_id TEXT NOT NULL, position INTEGER NOT NULL, kind TEXT NOT NULL,
        settings TEXT NOT NULL, digest TEXT NOT NULL, next_due BIGINT, cursor TEXT, failed_in_row INTEGER NOT NULL,
        last_fired_at BIGINT, last_execution_id TEXT, last_error TEXT, last_error_at BIGINT, created_at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, process_id, trigger_id),
        FOREIGN KEY (tenant_id, process_id) REFERENCES process (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX trigger_state_due ON trigger_state (next_due) WHERE next_due IS NOT NULL",
    """CREATE TABLE trigger_source (
        tenant_id TEXT NOT NULL, kind TEXT NOT NULL, source TEXT NOT NULL, process_id TEXT NOT NULL, trigger_id TEXT NOT NULL,
        PRIMARY KEY (tenant_id, kind, source, process_id, trigger_id),
        FOREIGN KEY (tenant_id, process_id, trigger_id) REFERENCES trigger_state (tenant_id, process_id, trigger_id)
            ON DELETE CASCADE)""",
    "CREATE UNIQUE INDEX trigger_source_path ON trigger_source (tenant_id, source) WHERE kind = 'webhook'",
    "CREATE INDEX trigger_source_of ON trigger_source (tenant_id, process_id, trigger_id)",
    """CREATE TABLE firing (
        tenant_id TEXT NOT NULL, id TEXT NOT NULL, process_id TEXT NOT NULL, trigger_id TEXT NOT NULL, kind TEXT NOT NULL,
        event_key TEXT NOT NULL, status TEXT NOT NULL, at BIGINT NOT NULL, due_at BIGINT, event TEXT, content TEXT,
        depth INTEGER NOT NULL, attempts INTEGER NOT NULL, next_try_at BIGINT, execution_id TEXT, error TEXT,
        PRIMARY KEY (tenant_id, id),
        FOREIGN KEY (tenant_id, process_id) REFERENCES process (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE UNIQUE INDEX firing_once ON firing (tenant_id, process_id, trigger_id, event_key)",
    "CREATE INDEX firing_content ON firing (tenant_id, process_id, trigger_id, content) WHERE content IS NOT NULL",
    "CREATE INDEX firing_pending ON firing (next_try_at) WHERE next_try_at IS NOT NULL",
    "CREATE INDEX firing_listed ON firing (tenant_id, process_id, trigger_id, at)",
    "CREATE INDEX firing_at ON firing (at)",
]
