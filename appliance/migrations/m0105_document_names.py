"""Documents are found by a part of their name, and by their media type, without reading all of the tenant.

SQLite has an index of the trigrams of names.  Its rows need a number of their own, as `VACUUM INTO`, which makes backups, may
change those of the table.
"""

STATEMENTS = [
    "ALTER TABLE document ADD COLUMN number BIGINT",
    "CREATE INDEX document_media_type ON document (tenant_id, media_type)",
]
ON_SQLITE = [
    "UPDATE document SET number = rowid",
    "CREATE UNIQUE INDEX document_number ON document (number)",
    "CREATE VIRTUAL TABLE document_name_index USING fts5(name, content='', columnsize=0, detail=none, tokenize='trigram')",
    "INSERT INTO document_name_index (rowid, name) SELECT number, name FROM document ORDER BY number",
]
ON_POSTGRESQL = [
    """UPDATE document SET number = numbered.number FROM (
        SELECT tenant_id, id, row_number() OVER (ORDER BY created_at, tenant_id, id) AS number FROM document
    ) AS numbered WHERE numbered.tenant_id = document.tenant_id AND numbered.id = document.id""",
    "CREATE UNIQUE INDEX document_number ON document (number)",
]
