"""WebApps, their versions with the files of each, and the compressed forms of files.

Files name contents before these have been sent, so that they refer to blobs without a foreign key: `Blobs.acquire` and the
list of holders keep what is there.
"""

STATEMENTS = [
    """CREATE TABLE webapp (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, name TEXT NOT NULL,
        description TEXT NOT NULL, published_version INTEGER, last_version INTEGER NOT NULL, created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, id))""",
    """CREATE TABLE webapp_version (
        tenant_id TEXT NOT NULL, app_id TEXT NOT NULL, number INTEGER NOT NULL, state TEXT NOT NULL, message TEXT NOT NULL,
        source TEXT NOT NULL, settings TEXT NOT NULL, rules TEXT NOT NULL, files INTEGER NOT NULL, bytes BIGINT NOT NULL,
        reason TEXT, created_at BIGINT NOT NULL, created_by TEXT NOT NULL, published_at BIGINT,
        PRIMARY KEY (tenant_id, app_id, number),
        FOREIGN KEY (tenant_id, app_id) REFERENCES webapp (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE webapp_file (
        tenant_id TEXT NOT NULL, app_id TEXT NOT NULL, number INTEGER NOT NULL, path TEXT NOT NULL, sha256 TEXT NOT NULL,
        size BIGINT NOT NULL, PRIMARY KEY (tenant_id, app_id, number, path),
        FOREIGN KEY (tenant_id, app_id, number) REFERENCES webapp_version (tenant_id, app_id, number) ON DELETE CASCADE)""",
    "CREATE INDEX webapp_file_blob ON webapp_file (tenant_id, sha256)",
    """CREATE TABLE webapp_form (
        tenant_id TEXT NOT NULL, app_id TEXT NOT NULL, content TEXT NOT NULL, encoding TEXT NOT NULL, sha256 TEXT NOT NULL,
        size BIGINT NOT NULL, PRIMARY KEY (tenant_id, app_id, content, encoding),
        FOREIGN KEY (tenant_id, app_id) REFERENCES webapp (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX webapp_form_blob ON webapp_form (tenant_id, sha256)",
]
