"""Uploads of documents that come in parts, and what a tenant says of its documents.

A part refers to its bytes without a foreign key: `Blobs.acquire` and the list of holders keep what is there.
"""

STATEMENTS = [
    "ALTER TABLE document ADD COLUMN metadata TEXT NOT NULL DEFAULT '{{}}'",
    """CREATE TABLE document_metadata (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, document_id TEXT NOT NULL, name TEXT NOT NULL,
        value TEXT NOT NULL, PRIMARY KEY (tenant_id, document_id, name),
        FOREIGN KEY (tenant_id, document_id) REFERENCES document (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX document_metadata_found ON document_metadata (tenant_id, name)",
    """CREATE TABLE document_upload (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, document_id TEXT,
        name TEXT NOT NULL, folder TEXT NOT NULL, tags TEXT NOT NULL, metadata TEXT NOT NULL, media_type TEXT,
        comment TEXT NOT NULL, size BIGINT NOT NULL, sha256 TEXT, received BIGINT NOT NULL, state TEXT NOT NULL,
        revision INTEGER, created_at BIGINT NOT NULL, created_by TEXT NOT NULL, expires_at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, id))""",
    "CREATE INDEX document_upload_expired ON document_upload (expires_at)",
    """CREATE TABLE document_upload_part (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, upload_id TEXT NOT NULL, begins BIGINT NOT NULL,
        sha256 TEXT NOT NULL, size BIGINT NOT NULL, PRIMARY KEY (tenant_id, upload_id, begins),
        FOREIGN KEY (tenant_id, upload_id) REFERENCES document_upload (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX document_upload_part_blob ON document_upload_part (tenant_id, sha256)",
]
