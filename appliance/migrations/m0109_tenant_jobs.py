"""Exports, imports and resets of a tenant are rows, so that any process can show them, and continue those of one that is gone.

`place` names the file in the store of contents: an export, an uploaded export, or the archive of a solution.  Earlier processes of
this release's schema do not know the table, and delete a file a day after it was stored, as they do with all that no row names.
"""

STATEMENTS = [
    """CREATE TABLE tenant_job (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, kind TEXT NOT NULL,
        actor TEXT NOT NULL, scopes TEXT NOT NULL, request_id TEXT NOT NULL, state TEXT NOT NULL, task TEXT NOT NULL,
        options TEXT NOT NULL, sealed {blob}, name TEXT NOT NULL, place TEXT, size BIGINT NOT NULL, stage TEXT NOT NULL,
        done BIGINT NOT NULL, total BIGINT NOT NULL, result TEXT NOT NULL, problem TEXT, started_at BIGINT NOT NULL,
        ended_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, owner TEXT, fence INTEGER NOT NULL, claims INTEGER NOT NULL,
        lease_until BIGINT NOT NULL, PRIMARY KEY (tenant_id, id))""",
    "CREATE UNIQUE INDEX tenant_job_single ON tenant_job (tenant_id, kind) WHERE state = 'running' AND kind <> 'import'",
    "CREATE INDEX tenant_job_running ON tenant_job (lease_until) WHERE state = 'running'",
    "CREATE INDEX tenant_job_place ON tenant_job (place)",
    "CREATE INDEX tenant_job_expires ON tenant_job (expires_at)",
]
