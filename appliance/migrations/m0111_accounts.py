"""Accounts can be disabled and deleted; `deleted_person` keeps the login of a deleted account, whose id remains in audit trails."""

STATEMENTS = [
    "ALTER TABLE person ADD COLUMN disabled_at BIGINT",
    "CREATE TABLE deleted_person (id TEXT PRIMARY KEY, login TEXT NOT NULL, deleted_at BIGINT NOT NULL)",
]
