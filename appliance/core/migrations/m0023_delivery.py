"""How documents leave: published ones, shares and the log of downloads; and what keeps them: rules, retention, scans."""

STATEMENTS = [
    """CREATE TABLE document_publication (
        tenant_id TEXT NOT NULL, document_id TEXT NOT NULL, path TEXT NOT NULL, revision TEXT NOT NULL, cache TEXT NOT NULL,
        created_at BIGINT NOT NULL, created_by TEXT NOT NULL, PRIMARY KEY (tenant_id, document_id),
        FOREIGN KEY (tenant_id, document_id) REFERENCES document (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE UNIQUE INDEX document_publication_path ON document_publication (tenant_id, path)",
    """CREATE TABLE document_share (
        tenant_id TEXT NOT NULL, id TEXT NOT NULL, document_id TEXT NOT NULL, digest {blob} NOT NULL, revision TEXT NOT NULL,
        expires_at BIGINT NOT NULL, password_hash TEXT, max_downloads INTEGER, downloads INTEGER NOT NULL, note TEXT NOT NULL,
        created_at BIGINT NOT NULL, created_by TEXT NOT NULL, revoked_at BIGINT, PRIMARY KEY (tenant_id, id),
        FOREIGN KEY (tenant_id, document_id) REFERENCES document (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE UNIQUE INDEX document_share_token ON document_share (tenant_id, digest)",
    "CREATE INDEX document_share_of ON document_share (tenant_id, document_id, created_at)",
    """CREATE TABLE document_download (
        tenant_id TEXT NOT NULL, id TEXT NOT NULL, document_id TEXT NOT NULL, share_id TEXT, at BIGINT NOT NULL,
        revision INTEGER NOT NULL, count INTEGER NOT NULL, bytes BIGINT NOT NULL, address TEXT NOT NULL, agent TEXT NOT NULL,
        outcome TEXT NOT NULL, PRIMARY KEY (tenant_id, id),
        FOREIGN KEY (tenant_id, document_id) REFERENCES document (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX document_download_of ON document_download (tenant_id, document_id, at)",
    "CREATE INDEX document_download_at ON document_download (tenant_id, at)",
    """CREATE TABLE folder_rule (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, folder TEXT NOT NULL, review TEXT NOT NULL,
        delete_after_days INTEGER, updated_at BIGINT NOT NULL, updated_by TEXT NOT NULL, PRIMARY KEY (tenant_id, folder))""",
    """CREATE TABLE document_keeping (
        tenant_id TEXT NOT NULL, document_id TEXT NOT NULL, retain_until BIGINT, hold_reason TEXT, held_at BIGINT, held_by TEXT,
        PRIMARY KEY (tenant_id, document_id),
        FOREIGN KEY (tenant_id, document_id) REFERENCES document (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE document_scan (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, sha256 TEXT NOT NULL, state TEXT NOT NULL,
        finding TEXT NOT NULL, scanned_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, sha256))""",
    "CREATE INDEX document_scan_open ON document_scan (state) WHERE state <> 'clean'",
]
