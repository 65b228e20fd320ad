"""Requests to WebApps: each for a while, their sums by day, and the salts that make a visitor of one day a number.

Numbers, not visitors: when the day is over its salt is deleted, and nobody can ask again who had which number.
"""

STATEMENTS = [
    """CREATE TABLE webapp_request (
        id {serial}, tenant_id TEXT NOT NULL, app_id TEXT NOT NULL, at BIGINT NOT NULL, method TEXT NOT NULL, path TEXT NOT NULL,
        status INTEGER NOT NULL, bytes BIGINT NOT NULL, ms DOUBLE PRECISION NOT NULL, address TEXT NOT NULL, agent TEXT NOT NULL,
        referrer TEXT NOT NULL, visitor_kind TEXT NOT NULL, visitor TEXT NOT NULL, route TEXT, execution_id TEXT,
        FOREIGN KEY (tenant_id, app_id) REFERENCES webapp (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX webapp_request_of ON webapp_request (tenant_id, app_id, at, id)",
    "CREATE INDEX webapp_request_at ON webapp_request (tenant_id, at)",
    """CREATE TABLE webapp_traffic (
        tenant_id TEXT NOT NULL, app_id TEXT NOT NULL, day BIGINT NOT NULL, requests BIGINT NOT NULL, bytes BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, app_id, day),
        FOREIGN KEY (tenant_id, app_id) REFERENCES webapp (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE TABLE webapp_salt (day BIGINT PRIMARY KEY, salt TEXT NOT NULL)",
]
