"""People choose the language of their pages; empty is what the browser asks for."""

STATEMENTS = [
    "ALTER TABLE person ADD COLUMN language TEXT NOT NULL DEFAULT ''",
]
