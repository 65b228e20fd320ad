"""The executions of a process stand in its index in the very order of lists, so that the newest is found at once."""

STATEMENTS = [
    "DROP INDEX execution_listed",
    "CREATE INDEX execution_listed ON execution (tenant_id, process_id, created_at, id)",
]
