"""Invitations: a role that waits for somebody who sets a password; only keyed digests of their links are stored."""

STATEMENTS = [
    """CREATE TABLE invitation (
        id TEXT PRIMARY KEY, tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, login TEXT NOT NULL,
        role TEXT NOT NULL, approver BOOLEAN NOT NULL, digest {blob} NOT NULL, state TEXT NOT NULL, problem TEXT NOT NULL,
        invited_by TEXT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, UNIQUE (tenant_id, login))""",
    "CREATE UNIQUE INDEX invitation_digest ON invitation (digest)",
    "CREATE INDEX invitation_expires ON invitation (expires_at)",
]
