"""Wrong passwords lock no account any more, so nothing counts them in the row of a person."""

STATEMENTS = [
    "ALTER TABLE person DROP COLUMN failed_count",
    "ALTER TABLE person DROP COLUMN locked_until",
]
