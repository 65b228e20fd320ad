"""Whom a request for a confirmation goes back to, so that nobody fills the page through keys of keys."""

STATEMENTS = [
    "ALTER TABLE confirmation ADD COLUMN requested_root TEXT NOT NULL DEFAULT ''",
    "UPDATE confirmation SET requested_root = requested_by",
]
