"""Samples pinned to processes, values of inputs by which executions are found, and labels that may be changed."""

STATEMENTS = [
    """CREATE TABLE process_sample (
        tenant_id TEXT NOT NULL, process_id TEXT NOT NULL, name TEXT NOT NULL, input TEXT NOT NULL, steps TEXT NOT NULL,
        from_execution TEXT, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, process_id, name),
        FOREIGN KEY (tenant_id, process_id) REFERENCES process (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE execution_input (
        tenant_id TEXT NOT NULL, execution_id TEXT NOT NULL, number INTEGER NOT NULL, path TEXT NOT NULL, value TEXT NOT NULL,
        PRIMARY KEY (tenant_id, execution_id, number),
        FOREIGN KEY (tenant_id, execution_id) REFERENCES execution (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX execution_input_value ON execution_input (tenant_id, value, path, execution_id)",
    # The label an execution was accepted with, once it has another: its expressions go on seeing it.
    "ALTER TABLE execution ADD COLUMN first_label TEXT",
]
