"""Until when the failures of a group were resolved, and an index to delete failures by their age."""

STATEMENTS = [
    "ALTER TABLE failure ADD COLUMN settled_at BIGINT",
    "ALTER TABLE failure ADD COLUMN settled_before BIGINT",
    "UPDATE failure SET settled_at = changed_at WHERE state = 'resolved'",
    "CREATE INDEX failure_occurrence_age ON failure_occurrence (tenant_id, at)",
]
