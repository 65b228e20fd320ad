"""Tenants, people, API keys, secrets, idempotency records and the queue."""

from appliance.core.queue import table_statements

STATEMENTS = [
    """CREATE TABLE tenant (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, kind TEXT NOT NULL, created_at BIGINT NOT NULL)""",
    """CREATE TABLE person (
        id TEXT PRIMARY KEY, login TEXT NOT NULL UNIQUE, password_hash TEXT NOT NULL, created_at BIGINT NOT NULL,
        failed_count INTEGER NOT NULL, locked_until BIGINT NOT NULL)""",
    """CREATE TABLE membership (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
        user_id TEXT NOT NULL REFERENCES person (id) ON DELETE CASCADE,
        role TEXT NOT NULL, approver INTEGER NOT NULL, created_at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, user_id))""",
    """CREATE TABLE session (
        digest {blob} PRIMARY KEY, user_id TEXT NOT NULL REFERENCES person (id) ON DELETE CASCADE,
        tenant_id TEXT REFERENCES tenant (id) ON DELETE CASCADE, kind TEXT NOT NULL,
        created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL)""",
    "CREATE INDEX session_expires ON session (expires_at)",
    """CREATE TABLE api_key (
        id TEXT PRIMARY KEY, tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
        digest {blob} NOT NULL UNIQUE, name TEXT NOT NULL, environment TEXT NOT NULL, prefix TEXT NOT NULL,
        last4 TEXT NOT NULL, scopes TEXT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL,
        rate_requests INTEGER NOT NULL, rate_window_s INTEGER NOT NULL, allowed_ips TEXT NOT NULL,
        created_by TEXT NOT NULL, last_used_at BIGINT, rotated_from TEXT, grace_until BIGINT, revoked_at BIGINT)""",
    "CREATE INDEX api_key_tenant ON api_key (tenant_id, id)",
    """CREATE TABLE secret (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, name TEXT NOT NULL,
        sealed {blob} NOT NULL, updated_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, name))""",
    """CREATE TABLE idempotency (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, caller TEXT NOT NULL, key TEXT NOT NULL,
        method TEXT NOT NULL, path TEXT NOT NULL, body_digest {blob} NOT NULL, state TEXT NOT NULL, owner TEXT NOT NULL,
        status INTEGER, headers TEXT, answer TEXT, created_at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, caller, key, method, path))""",
    "CREATE INDEX idempotency_created ON idempotency (created_at)",
    *table_statements(),
]
