"""Blobs, and the documents whose revisions refer to them."""

STATEMENTS = [
    """CREATE TABLE blob (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, sha256 TEXT NOT NULL, size BIGINT NOT NULL,
        place TEXT NOT NULL, touched_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, sha256))""",
    "CREATE INDEX blob_place ON blob (place)",
    "CREATE INDEX blob_touched ON blob (touched_at)",
    """CREATE TABLE document (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, name TEXT NOT NULL,
        folder TEXT NOT NULL, media_type TEXT NOT NULL, size BIGINT NOT NULL, sha256 TEXT NOT NULL,
        revision INTEGER NOT NULL, version INTEGER NOT NULL, created_at BIGINT NOT NULL, created_by TEXT NOT NULL,
        updated_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, id))""",
    "CREATE INDEX document_listed ON document (tenant_id, created_at)",
    "CREATE INDEX document_folder ON document (tenant_id, folder, name)",
    """CREATE TABLE document_tag (
        tenant_id TEXT NOT NULL, document_id TEXT NOT NULL, tag TEXT NOT NULL, PRIMARY KEY (tenant_id, document_id, tag),
        FOREIGN KEY (tenant_id, document_id) REFERENCES document (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX document_tag_found ON document_tag (tenant_id, tag)",
    """CREATE TABLE document_revision (
        tenant_id TEXT NOT NULL, document_id TEXT NOT NULL, number INTEGER NOT NULL, sha256 TEXT NOT NULL,
        size BIGINT NOT NULL, media_type TEXT NOT NULL, comment TEXT NOT NULL, created_at BIGINT NOT NULL,
        created_by TEXT NOT NULL, PRIMARY KEY (tenant_id, document_id, number),
        FOREIGN KEY (tenant_id, document_id) REFERENCES document (tenant_id, id) ON DELETE CASCADE,
        FOREIGN KEY (tenant_id, sha256) REFERENCES blob (tenant_id, sha256))""",
    "CREATE INDEX document_revision_blob ON document_revision (tenant_id, sha256)",
]
