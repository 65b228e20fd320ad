"""API keys can have a daily quota of requests: the quota, the key whose counts it uses after a rotation, and the counts by day."""

STATEMENTS = [
    "ALTER TABLE api_key ADD COLUMN daily_requests BIGINT",
    "ALTER TABLE api_key ADD COLUMN counted_as TEXT",
    """CREATE TABLE key_usage (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, key_id TEXT NOT NULL, day BIGINT NOT NULL,
        count BIGINT NOT NULL, PRIMARY KEY (tenant_id, key_id, day))""",
]
