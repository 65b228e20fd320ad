"""Processes, their versions, executions, step runs, journal and events."""

STATEMENTS = [
    """CREATE TABLE process (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, name TEXT NOT NULL,
        definition TEXT NOT NULL, files TEXT NOT NULL, draft_digest TEXT NOT NULL, published_version INTEGER,
        created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, id))""",
    """CREATE TABLE process_version (
        tenant_id TEXT NOT NULL, process_id TEXT NOT NULL, version INTEGER NOT NULL, definition TEXT NOT NULL,
        files TEXT NOT NULL, draft_digest TEXT NOT NULL, message TEXT NOT NULL, created_at BIGINT NOT NULL,
        created_by TEXT NOT NULL, PRIMARY KEY (tenant_id, process_id, version),
        FOREIGN KEY (tenant_id, process_id) REFERENCES process (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE execution (
        tenant_id TEXT NOT NULL, id TEXT NOT NULL, process_id TEXT NOT NULL, version INTEGER NOT NULL,
        status TEXT NOT NULL, wait_reason TEXT, waiting_for TEXT, input TEXT NOT NULL, output TEXT, error TEXT,
        failure_class TEXT, label TEXT, retry_of TEXT, priority INTEGER NOT NULL, idempotency TEXT,
        created_at BIGINT NOT NULL, enqueued_at BIGINT NOT NULL, started_at BIGINT, finished_at BIGINT,
        next_run_at BIGINT, active_ms BIGINT NOT NULL, owner TEXT, lease_until BIGINT NOT NULL,
        fence INTEGER NOT NULL, claims INTEGER NOT NULL, cancel_requested INTEGER NOT NULL, actor TEXT NOT NULL,
        request_id TEXT NOT NULL, PRIMARY KEY (tenant_id, id),
        FOREIGN KEY (tenant_id, process_id) REFERENCES process (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE UNIQUE INDEX execution_idempotency ON execution (tenant_id, idempotency) WHERE idempotency IS NOT NULL",
    "CREATE INDEX execution_listed ON execution (tenant_id, process_id, created_at)",
    """CREATE INDEX execution_open ON execution (status, next_run_at)
        WHERE status IN ('scheduled', 'queued', 'running', 'waiting', 'cancelling')""",
    "CREATE INDEX execution_finished ON execution (finished_at) WHERE finished_at IS NOT NULL",
    """CREATE TABLE step_run (
        tenant_id TEXT NOT NULL, execution_id TEXT NOT NULL, path TEXT NOT NULL, iteration TEXT NOT NULL,
        step TEXT NOT NULL, kind TEXT NOT NULL, status TEXT NOT NULL, attempt INTEGER NOT NULL,
        result_source TEXT NOT NULL, state TEXT, input TEXT, output TEXT, error TEXT, started_at BIGINT,
        finished_at BIGINT, next_run_at BIGINT,
        PRIMARY KEY (tenant_id, execution_id, path, iteration),
        FOREIGN KEY (tenant_id, execution_id) REFERENCES execution (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE journal (
        tenant_id TEXT NOT NULL, execution_id TEXT NOT NULL, path TEXT NOT NULL, iteration TEXT NOT NULL,
        attempt INTEGER NOT NULL, call INTEGER NOT NULL, position INTEGER NOT NULL, method TEXT NOT NULL,
        args TEXT NOT NULL, ok INTEGER NOT NULL, answer TEXT, clock TEXT NOT NULL, at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, execution_id, path, iteration, attempt, call),
        FOREIGN KEY (tenant_id, execution_id) REFERENCES execution (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE execution_event (
        id {serial}, tenant_id TEXT NOT NULL, execution_id TEXT NOT NULL, at BIGINT NOT NULL, type TEXT NOT NULL,
        data TEXT NOT NULL,
        FOREIGN KEY (tenant_id, execution_id) REFERENCES execution (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX execution_event_order ON execution_event (tenant_id, execution_id, id)",
]
