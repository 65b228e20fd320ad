"""The YAML that a draft was written as is kept beside its data."""

STATEMENTS = [
    "ALTER TABLE process ADD COLUMN source TEXT NOT NULL DEFAULT ''",
]
