"""Tables of documents, their revisions, texts, shares, reviews and uploads.

A part of an upload refers to its bytes without a foreign key: `Blobs.acquire` and the list of holders keep them.

Part of the baseline and never edited; a migration changes tables (`appliance/migrations`).
"""

from appliance.core.database.full_text import index_statements

STATEMENTS = [
    """CREATE TABLE document (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, name TEXT NOT NULL,
        folder TEXT NOT NULL, media_type TEXT NOT NULL, size BIGINT NOT NULL, sha256 TEXT NOT NULL, revision INTEGER NOT NULL,
        version INTEGER NOT NULL, created_at BIGINT NOT NULL, created_by TEXT NOT NULL, updated_at BIGINT NOT NULL,
        metadata TEXT NOT NULL DEFAULT '{{}}',
        PRIMARY KEY (tenant_id, id))""",
    "CREATE INDEX document_folder ON document (tenant_id, folder, name)",
    # In this order, a folder stands directly before its subfolders.
    "CREATE INDEX document_tree ON document (tenant_id, (replace(folder, '/', '\x01') || '\x01'), created_at, id)",
    """CREATE TABLE document_tag (
        tenant_id TEXT NOT NULL, document_id TEXT NOT NULL, tag TEXT NOT NULL, PRIMARY KEY (tenant_id, document_id, tag),
        FOREIGN KEY (tenant_id, document_id) REFERENCES document (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX document_tag_found ON document_tag (tenant_id, tag)",
    """CREATE TABLE document_revision (
        tenant_id TEXT NOT NULL, document_id TEXT NOT NULL, number INTEGER NOT NULL, sha256 TEXT NOT NULL,
        size BIGINT NOT NULL, media_type TEXT NOT NULL, comment TEXT NOT NULL, created_at BIGINT NOT NULL,
        created_by TEXT NOT NULL, PRIMARY KEY (tenant_id, document_id, number),
        FOREIGN KEY (tenant_id, document_id) REFERENCES document (tenant_id, id) ON DELETE CASCADE,
        FOREIGN KEY (tenant_id, sha256) REFERENCES blob (tenant_id, sha256))""",
    "CREATE INDEX document_revision_blob ON document_revision (tenant_id, sha256)",
    """CREATE TABLE document_publication (
        tenant_id TEXT NOT NULL, document_id TEXT NOT NULL, path TEXT NOT NULL, revision TEXT NOT NULL, cache TEXT NOT NULL,
        created_at BIGINT NOT NULL, created_by TEXT NOT NULL, PRIMARY KEY (tenant_id, document_id),
        FOREIGN KEY (tenant_id, document_id) REFERENCES document (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE UNIQUE INDEX document_publication_path ON document_publication (tenant_id, path)",
    """CREATE TABLE document_share (
        tenant_id TEXT NOT NULL, id TEXT NOT NULL, document_id TEXT NOT NULL, digest {blob} NOT NULL, revision TEXT NOT NULL,
        expires_at BIGINT NOT NULL, password_hash TEXT, max_downloads INTEGER, downloads INTEGER NOT NULL, note TEXT NOT NULL,
        created_at BIGINT NOT NULL, created_by TEXT NOT NULL, revoked_at BIGINT, audience TEXT,
        audience_number INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (tenant_id, id),
        FOREIGN KEY (tenant_id, document_id) REFERENCES document (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE UNIQUE INDEX document_share_token ON document_share (tenant_id, digest)",
    "CREATE INDEX document_share_of ON document_share (tenant_id, document_id, created_at)",
    """CREATE TABLE document_download (
        tenant_id TEXT NOT NULL, id TEXT NOT NULL, document_id TEXT NOT NULL, share_id TEXT, at BIGINT NOT NULL,
        revision INTEGER NOT NULL, count INTEGER NOT NULL, bytes BIGINT NOT NULL, address TEXT NOT NULL, agent TEXT NOT NULL,
        outcome TEXT NOT NULL, person TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (tenant_id, id),
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
    """CREATE TABLE document_metadata (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, document_id TEXT NOT NULL, name TEXT NOT NULL,
        value TEXT NOT NULL, PRIMARY KEY (tenant_id, document_id, name),
        FOREIGN KEY (tenant_id, document_id) REFERENCES document (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX document_metadata_found ON document_metadata (tenant_id, name)",
    """CREATE TABLE document_upload (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, document_id TEXT,
        name TEXT NOT NULL, folder TEXT NOT NULL, tags TEXT NOT NULL, metadata TEXT NOT NULL, media_type TEXT,
        comment TEXT NOT NULL, size BIGINT NOT NULL, sha256 TEXT, received BIGINT NOT NULL, state TEXT NOT NULL,
        revision INTEGER, created_at BIGINT NOT NULL, created_by TEXT NOT NULL, expires_at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, id))""",
    "CREATE INDEX document_upload_expired ON document_upload (expires_at)",
    """CREATE TABLE document_upload_part (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, upload_id TEXT NOT NULL, begins BIGINT NOT NULL,
        sha256 TEXT NOT NULL, size BIGINT NOT NULL, PRIMARY KEY (tenant_id, upload_id, begins),
        FOREIGN KEY (tenant_id, upload_id) REFERENCES document_upload (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX document_upload_part_blob ON document_upload_part (tenant_id, sha256)",
    """CREATE TABLE document_review (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, document_id TEXT NOT NULL,
        revision INTEGER NOT NULL, sha256 TEXT NOT NULL, needed INTEGER NOT NULL, reviewers TEXT NOT NULL, note TEXT NOT NULL,
        status TEXT NOT NULL, due_at BIGINT NOT NULL, requested_by TEXT NOT NULL, created_at BIGINT NOT NULL, closed_at BIGINT,
        PRIMARY KEY (tenant_id, id),
        FOREIGN KEY (tenant_id, document_id) REFERENCES document (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX document_review_of ON document_review (tenant_id, document_id, created_at)",
    "CREATE INDEX document_review_due ON document_review (due_at) WHERE status = 'pending'",
    """CREATE TABLE document_vote (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, review_id TEXT NOT NULL, user_id TEXT NOT NULL,
        login TEXT NOT NULL, decision TEXT NOT NULL, comment TEXT NOT NULL, at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, review_id, user_id),
        FOREIGN KEY (tenant_id, review_id) REFERENCES document_review (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE document_text (
        id {serial}, tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, content TEXT NOT NULL,
        media_type TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, sha256 TEXT, size BIGINT NOT NULL, beginning TEXT,
        words TEXT, tries INTEGER NOT NULL, next_try_at BIGINT NOT NULL, is_scan INTEGER NOT NULL DEFAULT 0,
        code TEXT NOT NULL DEFAULT '', UNIQUE (tenant_id, content))""",
    "CREATE INDEX document_text_blob ON document_text (tenant_id, sha256)",
    "CREATE INDEX document_text_due ON document_text (is_scan, next_try_at) WHERE state = 'pending'",
    """CREATE TABLE document_preview (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, content TEXT NOT NULL, page INTEGER NOT NULL,
        width INTEGER NOT NULL, sha256 TEXT, size BIGINT NOT NULL, refusal TEXT, reason TEXT,
        PRIMARY KEY (tenant_id, content, page, width))""",
    "CREATE INDEX document_preview_blob ON document_preview (tenant_id, sha256)",
    """CREATE TABLE document_key_check (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, content TEXT NOT NULL, holds_key INTEGER NOT NULL,
        PRIMARY KEY (tenant_id, content))""",
]

_INDEX_SQLITE, _INDEX_POSTGRESQL = index_statements("document_text")
ON_SQLITE = [
    # It contains the columns that searches filter by, so that they read no rows that do not match.
    "CREATE INDEX document_listed ON document (tenant_id, created_at, id, name, folder, media_type, sha256)",
    *_INDEX_SQLITE,
]
ON_POSTGRESQL = [
    # Entries are limited to 2,704 bytes, and a folder and a name may be longer.
    "CREATE INDEX document_listed ON document (tenant_id, created_at, id)",
    *_INDEX_POSTGRESQL,
]
