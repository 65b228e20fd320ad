"""Pictures of documents' contents, one for each page and width, or why there is none."""

STATEMENTS = [
    """CREATE TABLE document_preview (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, content TEXT NOT NULL, page INTEGER NOT NULL,
        width INTEGER NOT NULL, sha256 TEXT, size BIGINT NOT NULL, refusal TEXT, reason TEXT,
        PRIMARY KEY (tenant_id, content, page, width))""",
    "CREATE INDEX document_preview_blob ON document_preview (tenant_id, sha256)",
]
