"""Tables of policies, approvals, switched-off operations and the use of budgets.

Part of the baseline and never edited; a migration changes tables (`appliance/migrations`).
"""

STATEMENTS = [
    """CREATE TABLE policy (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, draft TEXT NOT NULL,
        draft_digest TEXT NOT NULL, active_version INTEGER, created_at BIGINT NOT NULL, created_by TEXT NOT NULL,
        updated_at BIGINT NOT NULL, updated_by TEXT NOT NULL, PRIMARY KEY (tenant_id, id))""",
    """CREATE TABLE policy_version (
        tenant_id TEXT NOT NULL, policy_id TEXT NOT NULL, number INTEGER NOT NULL, document TEXT NOT NULL, digest TEXT NOT NULL,
        mode TEXT NOT NULL, message TEXT NOT NULL, created_at BIGINT NOT NULL, created_by TEXT NOT NULL, activated_at BIGINT,
        activated_by TEXT, PRIMARY KEY (tenant_id, policy_id, number),
        FOREIGN KEY (tenant_id, policy_id) REFERENCES policy (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE policy_set (
        tenant_id TEXT PRIMARY KEY REFERENCES tenant (id) ON DELETE CASCADE, stamp TEXT NOT NULL)""",
    """CREATE TABLE approval (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, kind TEXT NOT NULL,
        title TEXT NOT NULL, reason TEXT NOT NULL, details TEXT, answer_schema TEXT, choices TEXT NOT NULL,
        approvers TEXT NOT NULL, digest TEXT NOT NULL, status TEXT NOT NULL, execution_id TEXT, process_id TEXT NOT NULL,
        step TEXT NOT NULL, path TEXT NOT NULL, iteration TEXT NOT NULL, host_call INTEGER NOT NULL, attempt INTEGER NOT NULL,
        requested_by TEXT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT, closed_at BIGINT, decided_by TEXT,
        decided_login TEXT, answer TEXT, comment TEXT NOT NULL, asked_by TEXT NOT NULL DEFAULT '',
        agent TEXT NOT NULL DEFAULT '', run_id TEXT NOT NULL DEFAULT '', needed INTEGER NOT NULL DEFAULT 1,
        heading TEXT NOT NULL DEFAULT '', summary TEXT NOT NULL DEFAULT '', action_digest TEXT, sealed {blob}, policy TEXT,
        idempotency_key TEXT, used_at BIGINT, used_by TEXT, notified_at BIGINT,
        PRIMARY KEY (tenant_id, id),
        FOREIGN KEY (tenant_id, execution_id) REFERENCES execution (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX approval_listed ON approval (tenant_id, status, created_at)",
    "CREATE INDEX approval_execution ON approval (tenant_id, execution_id)",
    "CREATE INDEX approval_due ON approval (status, expires_at)",
    "CREATE UNIQUE INDEX approval_asked_once ON approval (tenant_id, asked_by, run_id, idempotency_key)",
    "CREATE INDEX approval_untold ON approval (status, notified_at)",
    "CREATE INDEX approval_open_by ON approval (tenant_id, asked_by, status)",
    """CREATE TABLE approval_vote (
        tenant_id TEXT NOT NULL, approval_id TEXT NOT NULL, user_id TEXT NOT NULL, login TEXT NOT NULL,
        verdict TEXT NOT NULL, comment TEXT NOT NULL, at BIGINT NOT NULL, PRIMARY KEY (tenant_id, approval_id, user_id),
        FOREIGN KEY (tenant_id, approval_id) REFERENCES approval (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE switched_off (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, kind TEXT NOT NULL, name TEXT NOT NULL,
        reason TEXT NOT NULL, set_by TEXT NOT NULL, set_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, kind, name))""",
    """CREATE TABLE governed_use (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, name TEXT NOT NULL, span TEXT NOT NULL,
        calls BIGINT NOT NULL, used_at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, name, span))""",
    """CREATE TABLE action_preview (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, digest TEXT NOT NULL, actor TEXT NOT NULL,
        at BIGINT NOT NULL, PRIMARY KEY (tenant_id, digest, actor))""",
    """CREATE TABLE approval_told (
        tenant_id TEXT NOT NULL, approval_id TEXT NOT NULL, user_id TEXT NOT NULL, at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, approval_id, user_id),
        FOREIGN KEY (tenant_id, approval_id) REFERENCES approval (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX approval_told_last ON approval_told (tenant_id, user_id, at)",
]
