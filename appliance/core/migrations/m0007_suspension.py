"""Calls of step code that wait for somebody or something, the stored VMs of their steps, and the parents of executions."""

STATEMENTS = [
    """CREATE TABLE pending_call (
        tenant_id TEXT NOT NULL, execution_id TEXT NOT NULL, path TEXT NOT NULL, iteration TEXT NOT NULL,
        attempt INTEGER NOT NULL, call INTEGER NOT NULL, kind TEXT NOT NULL, token TEXT NOT NULL, name TEXT NOT NULL,
        due_at BIGINT NOT NULL, ok INTEGER, answer TEXT, created_at BIGINT NOT NULL, answered_at BIGINT,
        PRIMARY KEY (tenant_id, execution_id, path, iteration, attempt, call),
        FOREIGN KEY (tenant_id, execution_id) REFERENCES execution (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE UNIQUE INDEX pending_call_token ON pending_call (tenant_id, token)",
    """CREATE TABLE suspended_step (
        tenant_id TEXT NOT NULL, execution_id TEXT NOT NULL, path TEXT NOT NULL, iteration TEXT NOT NULL,
        attempt INTEGER NOT NULL, template TEXT NOT NULL, position INTEGER NOT NULL, pending TEXT NOT NULL,
        used_ms BIGINT NOT NULL,
        sealed {blob} NOT NULL, created_at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, execution_id, path, iteration),
        FOREIGN KEY (tenant_id, execution_id) REFERENCES execution (tenant_id, id) ON DELETE CASCADE)""",
    "ALTER TABLE execution ADD COLUMN parent TEXT",
    "ALTER TABLE execution ADD COLUMN depth INTEGER NOT NULL DEFAULT 0",
]
