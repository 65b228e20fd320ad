"""Policies: a draft and numbered versions each, and per tenant a stamp that changes whenever another set of them judges."""

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
]
