"""The text of documents' contents, found by its words; contents that are there already are read as well."""

from appliance.core.database.full_text import index_statements

STATEMENTS = [
    """CREATE TABLE document_text (
        id {serial}, tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, content TEXT NOT NULL,
        media_type TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, sha256 TEXT, size BIGINT NOT NULL, beginning TEXT,
        words TEXT, tries INTEGER NOT NULL, next_try_at BIGINT NOT NULL, UNIQUE (tenant_id, content))""",
    "CREATE INDEX document_text_due ON document_text (next_try_at) WHERE state = 'pending'",
    "CREATE INDEX document_text_blob ON document_text (tenant_id, sha256)",
    """INSERT INTO document_text (tenant_id, content, media_type, state, reason, size, tries, next_try_at)
        SELECT tenant_id, sha256, MIN(media_type), 'pending', '', 0, 0, 0 FROM document GROUP BY tenant_id, sha256""",
]
ON_SQLITE, ON_POSTGRESQL = index_statements("document_text")
