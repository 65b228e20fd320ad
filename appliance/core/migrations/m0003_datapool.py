"""DataPool collections; the table of each collection's entities is made when the collection is."""

STATEMENTS = [
    """CREATE TABLE collection (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, name TEXT NOT NULL,
        definition TEXT NOT NULL, table_name TEXT NOT NULL UNIQUE, stamp TEXT NOT NULL,
        version BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, name))""",
]
