"""What executions ask of people, and what these decided."""

STATEMENTS = [
    """CREATE TABLE approval (
        tenant_id TEXT NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL, title TEXT NOT NULL, reason TEXT NOT NULL,
        details TEXT, answer_schema TEXT, choices TEXT NOT NULL, approvers TEXT NOT NULL, digest TEXT NOT NULL,
        status TEXT NOT NULL, execution_id TEXT NOT NULL, process_id TEXT NOT NULL, step TEXT NOT NULL,
        path TEXT NOT NULL, iteration TEXT NOT NULL, host_call INTEGER NOT NULL, attempt INTEGER NOT NULL,
        requested_by TEXT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT, closed_at BIGINT,
        decided_by TEXT, decided_login TEXT, answer TEXT, comment TEXT NOT NULL, PRIMARY KEY (tenant_id, id),
        FOREIGN KEY (tenant_id, execution_id) REFERENCES execution (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX approval_listed ON approval (tenant_id, status, created_at)",
    "CREATE INDEX approval_execution ON approval (tenant_id, execution_id)",
]
