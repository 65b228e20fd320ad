"""How many calls of an integration run at once, what each call came past, and which call is the retry of which."""

STATEMENTS = [
    "ALTER TABLE integration ADD COLUMN concurrency INTEGER NOT NULL DEFAULT 16",
    "ALTER TABLE integration_call ADD COLUMN retry_of TEXT",
    "ALTER TABLE integration_call ADD COLUMN traffic TEXT",
    "CREATE UNIQUE INDEX integration_call_retry ON integration_call (tenant_id, retry_of) WHERE retry_of IS NOT NULL",
    "CREATE INDEX integration_call_at ON integration_call (tenant_id, created_at)",
    "CREATE INDEX integration_call_execution ON integration_call (tenant_id, execution_id) WHERE execution_id IS NOT NULL",
]
