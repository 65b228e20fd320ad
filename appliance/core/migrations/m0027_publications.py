"""Publications: versions that are being published with checks, and what these saw."""

STATEMENTS = [
    """CREATE TABLE webapp_publication (
        tenant_id TEXT NOT NULL, app_id TEXT NOT NULL, number INTEGER NOT NULL, state TEXT NOT NULL, previous INTEGER NOT NULL,
        before_at BIGINT, checks TEXT NOT NULL, reason TEXT, started_by TEXT NOT NULL, owner TEXT NOT NULL, fence INTEGER NOT NULL,
        claims INTEGER NOT NULL, lease_until BIGINT NOT NULL, started_at BIGINT NOT NULL, ended_at BIGINT,
        PRIMARY KEY (tenant_id, app_id, number),
        FOREIGN KEY (tenant_id, app_id, number) REFERENCES webapp_version (tenant_id, app_id, number) ON DELETE CASCADE)""",
    "CREATE INDEX webapp_publication_state ON webapp_publication (state)",
]
