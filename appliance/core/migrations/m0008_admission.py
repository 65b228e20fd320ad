"""When an execution may begin: paused processes, turns among executions, slots of concurrency keys, expiry."""

STATEMENTS = [
    "ALTER TABLE process ADD COLUMN paused_at BIGINT",
    "ALTER TABLE execution ADD COLUMN rank BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE execution ADD COLUMN expires_at BIGINT",
    "ALTER TABLE execution ADD COLUMN slot TEXT",
    "ALTER TABLE execution ADD COLUMN slot_limit INTEGER",
    "ALTER TABLE execution ADD COLUMN slot_behaviour TEXT",
    "UPDATE execution SET rank = enqueued_at - priority * 600000",
    "CREATE INDEX execution_ready ON execution (tenant_id, rank, id) WHERE status = 'queued' AND wait_reason IS NULL",
    """CREATE INDEX execution_held ON execution (tenant_id, process_id, wait_reason, slot, rank, id)
        WHERE status = 'queued' AND wait_reason IS NOT NULL""",
    """CREATE INDEX execution_slot ON execution (tenant_id, process_id, slot)
        WHERE slot IS NOT NULL AND finished_at IS NULL AND status <> 'scheduled' AND COALESCE(wait_reason, '') <> 'slot'""",
    """CREATE INDEX execution_expiry ON execution (expires_at)
        WHERE expires_at IS NOT NULL AND started_at IS NULL AND finished_at IS NULL""",
]
