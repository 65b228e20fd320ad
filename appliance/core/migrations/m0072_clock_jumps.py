"""What a machine's wall clock showed at last, and which waits are durations that its clock measures."""

STATEMENTS = [
    "CREATE TABLE machine_clock (boot_id TEXT PRIMARY KEY, apart_ms BIGINT NOT NULL)",
    "ALTER TABLE step_run ADD COLUMN measured_by TEXT",
    "ALTER TABLE pending_call ADD COLUMN measured_by TEXT",
]
