"""Documents are browsed by folder and found newest first, however many there are."""

STATEMENTS = [
    "DROP INDEX document_listed",
    # A folder stands right before what is below it, which no name that only begins like it comes between.
    "CREATE INDEX document_tree ON document (tenant_id, (replace(folder, '/', '\x01') || '\x01'), created_at, id)",
]
# What documents are narrowed by stands in the index itself: a search reads nothing else of those that it passes.
ON_SQLITE = ["CREATE INDEX document_listed ON document (tenant_id, created_at, id, name, folder, media_type, sha256)"]
# There an entry has at most 2,704 bytes, and a folder and a name may have more.
ON_POSTGRESQL = ["CREATE INDEX document_listed ON document (tenant_id, created_at, id)"]
