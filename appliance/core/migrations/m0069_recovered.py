"""Which failed executions were made good by a retry, and indexes to find them, and what is left of a group."""

STATEMENTS = [
    "ALTER TABLE failure_occurrence ADD COLUMN recovered_at BIGINT",
    "CREATE INDEX failure_occurrence_of ON failure_occurrence (tenant_id, execution_id)",
    "CREATE INDEX failure_occurrence_open ON failure_occurrence (tenant_id, failure_id, at) WHERE recovered_at IS NULL",
]
