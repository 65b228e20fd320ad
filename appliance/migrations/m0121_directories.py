"""Accounts that a directory has disabled are marked, so that it can enable them again; directories are checked by one process."""

STATEMENTS = [
    "ALTER TABLE person_identity ADD COLUMN disabled_at BIGINT",
    "CREATE TABLE directory_check (directory TEXT PRIMARY KEY, due_at BIGINT NOT NULL, problem TEXT NOT NULL)",
]
