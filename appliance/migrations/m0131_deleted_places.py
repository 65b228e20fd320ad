"""Contents that nothing refers to any more stay in the store for `blobs.keep_deleted`: this table says since when.

So a database that is restored to an earlier moment still has the contents that its rows name.
"""

STATEMENTS = [
    "CREATE TABLE blob_deleted (place TEXT NOT NULL PRIMARY KEY, deleted_at BIGINT NOT NULL)",
    "CREATE INDEX blob_deleted_at ON blob_deleted (deleted_at)",
]
