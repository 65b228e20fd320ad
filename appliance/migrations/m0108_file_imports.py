"""Imports of uploaded files are rows, so that any process can show them, and continue those of a process that is gone.

`sha256` refers to the file in the blob store until the import is done.  Earlier processes of this release's schema do not know the
table as a holder of contents; the foreign key keeps them from collecting a file that is still needed.
"""

STATEMENTS = [
    """CREATE TABLE file_import (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, actor TEXT NOT NULL,
        scopes TEXT NOT NULL, request_id TEXT NOT NULL, collection TEXT NOT NULL, name TEXT NOT NULL, sha256 TEXT,
        form TEXT NOT NULL, delimiter TEXT NOT NULL, encoding TEXT NOT NULL, columns TEXT NOT NULL, sample TEXT NOT NULL,
        state TEXT NOT NULL, options TEXT NOT NULL, report TEXT, errors TEXT NOT NULL, problem TEXT NOT NULL,
        accessed_at BIGINT NOT NULL, owner TEXT, fence INTEGER NOT NULL, claims INTEGER NOT NULL, lease_until BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, id),
        FOREIGN KEY (tenant_id, sha256) REFERENCES blob (tenant_id, sha256))""",
    "CREATE INDEX file_import_blob ON file_import (tenant_id, sha256)",
    "CREATE INDEX file_import_accessed ON file_import (accessed_at)",
    "CREATE INDEX file_import_running ON file_import (lease_until) WHERE state IN ('trying', 'importing')",
]
