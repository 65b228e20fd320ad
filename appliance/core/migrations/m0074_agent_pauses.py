"""Which waits of agents' runs are durations, and by which machine's clock."""

STATEMENTS = ["ALTER TABLE agent_run ADD COLUMN measured_by TEXT"]
