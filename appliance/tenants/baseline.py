"""Tables of tenants, people, sessions, keys, secrets, grants and idempotency records.

Part of the baseline and never edited; a migration changes tables (`appliance/migrations`).
"""

STATEMENTS = [
    """CREATE TABLE tenant (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, kind TEXT NOT NULL, created_at BIGINT NOT NULL)""",
    """CREATE TABLE person (
        id TEXT PRIMARY KEY, login TEXT NOT NULL UNIQUE, password_hash TEXT NOT NULL, created_at BIGINT NOT NULL,
        language TEXT NOT NULL DEFAULT '')""",
    """CREATE TABLE membership (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
        user_id TEXT NOT NULL REFERENCES person (id) ON DELETE CASCADE, role TEXT NOT NULL, approver INTEGER NOT NULL,
        created_at BIGINT NOT NULL, steps_hidden_at BIGINT,
        PRIMARY KEY (tenant_id, user_id))""",
    """CREATE TABLE session (
        digest {blob} PRIMARY KEY, user_id TEXT NOT NULL REFERENCES person (id) ON DELETE CASCADE,
        tenant_id TEXT REFERENCES tenant (id) ON DELETE CASCADE, kind TEXT NOT NULL, created_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL, root TEXT NOT NULL DEFAULT '')""",
    "CREATE INDEX session_expires ON session (expires_at)",
    """CREATE TABLE api_key (
        id TEXT PRIMARY KEY, tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, digest {blob} NOT NULL UNIQUE,
        name TEXT NOT NULL, environment TEXT NOT NULL, prefix TEXT NOT NULL, last4 TEXT NOT NULL, scopes TEXT NOT NULL,
        created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, rate_requests INTEGER NOT NULL, rate_window_s INTEGER NOT NULL,
        allowed_ips TEXT NOT NULL, created_by TEXT NOT NULL, last_used_at BIGINT, rotated_from TEXT, grace_until BIGINT,
        revoked_at BIGINT, kind TEXT NOT NULL DEFAULT 'service', issuer TEXT NOT NULL DEFAULT '', orphaned_at BIGINT,
        orphan_until BIGINT)""",
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
    """CREATE TABLE email_code (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, door TEXT NOT NULL,
        email TEXT NOT NULL, digest {blob} NOT NULL, state TEXT NOT NULL, tries INTEGER NOT NULL, created_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, id))""",
    "CREATE INDEX email_code_address ON email_code (tenant_id, door, email, created_at)",
    "CREATE INDEX email_code_created ON email_code (created_at)",
    """CREATE TABLE invitation (
        id TEXT PRIMARY KEY, tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, login TEXT NOT NULL,
        role TEXT NOT NULL, approver BOOLEAN NOT NULL, digest {blob} NOT NULL, state TEXT NOT NULL, problem TEXT NOT NULL,
        invited_by TEXT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, UNIQUE (tenant_id, login))""",
    "CREATE UNIQUE INDEX invitation_digest ON invitation (digest)",
    "CREATE INDEX invitation_expires ON invitation (expires_at)",
    """CREATE TABLE confirmation (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, kind TEXT NOT NULL,
        subject TEXT NOT NULL, digest TEXT NOT NULL, details TEXT NOT NULL, requested_by TEXT NOT NULL,
        created_at BIGINT NOT NULL, deadline BIGINT, state TEXT NOT NULL, decided_by TEXT, decided_at BIGINT,
        requested_root TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (tenant_id, id), UNIQUE (tenant_id, kind, subject, digest))""",
    "CREATE INDEX confirmation_state ON confirmation (tenant_id, state, created_at)",
    """CREATE TABLE authority_grant (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, subject TEXT NOT NULL, digest TEXT NOT NULL,
        reach TEXT NOT NULL, granted_by TEXT NOT NULL, granted_at BIGINT NOT NULL, withdrawn_by TEXT, withdrawn_at BIGINT,
        PRIMARY KEY (tenant_id, subject, digest))""",
    """CREATE TABLE secret_binding (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        kind TEXT NOT NULL,
        target TEXT NOT NULL,
        digest TEXT NOT NULL,
        hosts TEXT NOT NULL,
        bound_by TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        expires_at BIGINT,
        PRIMARY KEY (tenant_id, name, kind, target, digest, hosts)
    )""",
    """CREATE TABLE secret_use (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
        kind TEXT NOT NULL,
        target TEXT NOT NULL,
        PRIMARY KEY (tenant_id, kind, target)
    )""",
]
