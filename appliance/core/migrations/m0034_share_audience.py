"""Shares for named people: who they are, how often that was changed, and who a download was by."""

STATEMENTS = [
    "ALTER TABLE document_share ADD COLUMN audience TEXT",
    "ALTER TABLE document_share ADD COLUMN audience_number INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE document_download ADD COLUMN person TEXT NOT NULL DEFAULT ''",
]
