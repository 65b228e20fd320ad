"""Whether a content of a document holds an API key, looked at once."""

STATEMENTS = [
    """CREATE TABLE document_key_check (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, content TEXT NOT NULL, holds_key INTEGER NOT NULL,
        PRIMARY KEY (tenant_id, content))""",
]
