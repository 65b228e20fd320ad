"""Requests to people that belong to no execution, the actions they are about, and the single decisions of several people."""

_KEPT = (
    "tenant_id, id, kind, title, reason, details, answer_schema, choices, approvers, digest, status, execution_id, process_id, "
    "step, path, iteration, host_call, attempt, requested_by, created_at, expires_at, closed_at, decided_by, decided_login, "
    "answer, comment"
)

STATEMENTS = [
    # Made anew because SQLite cannot let `execution_id` be NULL.
    """CREATE TABLE approval_new (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, kind TEXT NOT NULL,
        title TEXT NOT NULL, reason TEXT NOT NULL, details TEXT, answer_schema TEXT, choices TEXT NOT NULL,
        approvers TEXT NOT NULL, digest TEXT NOT NULL, status TEXT NOT NULL, execution_id TEXT, process_id TEXT NOT NULL,
        step TEXT NOT NULL, path TEXT NOT NULL, iteration TEXT NOT NULL, host_call INTEGER NOT NULL,
        attempt INTEGER NOT NULL, requested_by TEXT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT,
        closed_at BIGINT, decided_by TEXT, decided_login TEXT, answer TEXT, comment TEXT NOT NULL,
        asked_by TEXT NOT NULL DEFAULT '', agent TEXT NOT NULL DEFAULT '', run_id TEXT NOT NULL DEFAULT '',
        needed INTEGER NOT NULL DEFAULT 1, heading TEXT NOT NULL DEFAULT '', summary TEXT NOT NULL DEFAULT '',
        action_digest TEXT, sealed {blob}, policy TEXT, idempotency_key TEXT, used_at BIGINT, used_by TEXT,
        PRIMARY KEY (tenant_id, id),
        FOREIGN KEY (tenant_id, execution_id) REFERENCES execution (tenant_id, id) ON DELETE CASCADE)""",
    f"INSERT INTO approval_new ({_KEPT}) SELECT {_KEPT} FROM approval",  # noqa: S608  our own names
    "DROP TABLE approval",
    "ALTER TABLE approval_new RENAME TO approval",
    "CREATE INDEX approval_listed ON approval (tenant_id, status, created_at)",
    "CREATE INDEX approval_execution ON approval (tenant_id, execution_id)",
    "CREATE INDEX approval_due ON approval (status, expires_at)",
    "CREATE UNIQUE INDEX approval_asked_once ON approval (tenant_id, asked_by, run_id, idempotency_key)",
    """CREATE TABLE approval_vote (
        tenant_id TEXT NOT NULL, approval_id TEXT NOT NULL, user_id TEXT NOT NULL, login TEXT NOT NULL,
        verdict TEXT NOT NULL, comment TEXT NOT NULL, at BIGINT NOT NULL, PRIMARY KEY (tenant_id, approval_id, user_id),
        FOREIGN KEY (tenant_id, approval_id) REFERENCES approval (tenant_id, id) ON DELETE CASCADE)""",
]
