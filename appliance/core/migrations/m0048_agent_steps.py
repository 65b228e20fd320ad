"""Runs of agents that steps started: where they belong, what they may reach, what they wait for in their step's place, and
what has tainted the execution through them."""

STATEMENTS = [
    "ALTER TABLE agent_run ADD COLUMN execution_id TEXT",
    "ALTER TABLE agent_run ADD COLUMN process_id TEXT",
    "ALTER TABLE agent_run ADD COLUMN step TEXT",
    "ALTER TABLE agent_run ADD COLUMN path TEXT",
    "ALTER TABLE agent_run ADD COLUMN iteration TEXT",
    "ALTER TABLE agent_run ADD COLUMN attempt INTEGER",
    "ALTER TABLE agent_run ADD COLUMN granted TEXT",
    """CREATE UNIQUE INDEX agent_run_step ON agent_run (tenant_id, execution_id, path, iteration, attempt)
        WHERE execution_id IS NOT NULL""",
    "ALTER TABLE pending_call ADD COLUMN detail TEXT",
    "ALTER TABLE execution ADD COLUMN tainted_by TEXT",
]
