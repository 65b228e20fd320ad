"""Texts that are recognised wait apart from those that are read at once; why one failed is a code, too."""

STATEMENTS = [
    "ALTER TABLE document_text ADD COLUMN is_scan INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE document_text ADD COLUMN code TEXT NOT NULL DEFAULT ''",
    "UPDATE document_text SET is_scan = 1 WHERE media_type IN ('image/png', 'image/jpeg', 'image/tiff', 'image/webp', 'image/gif')",
    "DROP INDEX document_text_due",
    "CREATE INDEX document_text_due ON document_text (is_scan, next_try_at) WHERE state = 'pending'",
]
