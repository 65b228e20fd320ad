"""Table of blobs.

Part of the baseline and never edited; a migration changes tables (`appliance/migrations`).
"""

STATEMENTS = [
    """CREATE TABLE blob (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, sha256 TEXT NOT NULL, size BIGINT NOT NULL,
        place TEXT NOT NULL, touched_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, sha256))""",
    "CREATE INDEX blob_place ON blob (place)",
    "CREATE INDEX blob_touched ON blob (touched_at)",
]
