"""Tables of collections and of the changes of their entities; the table of its entities is created with each collection.

Part of the baseline and never edited; a migration changes tables (`appliance/migrations`).
"""

STATEMENTS = [
    """CREATE TABLE collection (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, name TEXT NOT NULL,
        definition TEXT NOT NULL, table_name TEXT NOT NULL UNIQUE, stamp TEXT NOT NULL,
        version BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, name))""",
    """CREATE TABLE entity_change (
        number {serial}, tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, collection TEXT NOT NULL,
        entity_id TEXT NOT NULL, version BIGINT NOT NULL, event TEXT NOT NULL, at BIGINT NOT NULL, actor TEXT NOT NULL,
        entity TEXT NOT NULL)""",
    "CREATE INDEX entity_change_entity ON entity_change (tenant_id, collection, entity_id, number)",
    "CREATE INDEX entity_change_collection ON entity_change (tenant_id, collection, number)",
    "CREATE INDEX entity_change_at ON entity_change (tenant_id, at)",
]
