"""Grants: what a process or a WebApp may reach, who allowed it, and until when each published version may run under it."""

STATEMENTS = [
    """CREATE TABLE authority_grant (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, subject TEXT NOT NULL, digest TEXT NOT NULL,
        reach TEXT NOT NULL, granted_by TEXT NOT NULL, granted_at BIGINT NOT NULL, withdrawn_by TEXT, withdrawn_at BIGINT,
        PRIMARY KEY (tenant_id, subject, digest))""",
    # Without a digest a version is of before this release: what it reaches is looked at once, see `processes.version_grants`.
    "ALTER TABLE process_version ADD COLUMN grant_digest TEXT",
    "ALTER TABLE process_version ADD COLUMN allowed_until BIGINT",
]
