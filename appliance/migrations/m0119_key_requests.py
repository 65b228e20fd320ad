"""API keys can have a log of their requests."""

STATEMENTS = [
    "ALTER TABLE api_key ADD COLUMN records_requests BOOLEAN NOT NULL DEFAULT FALSE",
    """CREATE TABLE key_request (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, key_id TEXT NOT NULL,
        at BIGINT NOT NULL, method TEXT NOT NULL, path TEXT NOT NULL,
        status INTEGER NOT NULL, ms DOUBLE PRECISION NOT NULL, address TEXT NOT NULL,
        PRIMARY KEY (tenant_id, id))""",
    "CREATE INDEX key_request_key ON key_request (tenant_id, key_id, at, id)",
    "CREATE INDEX key_request_at ON key_request (at)",
]
