"""How each integration's foreign system fares: its circuit breaker and how long it asked for patience."""

STATEMENTS = [
    """CREATE TABLE integration_circuit (
        tenant_id TEXT NOT NULL, integration_id TEXT NOT NULL, failures INTEGER NOT NULL, openings INTEGER NOT NULL,
        open_until BIGINT, probing_until BIGINT, held_until BIGINT, reason TEXT NOT NULL, changed_at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, integration_id),
        FOREIGN KEY (tenant_id, integration_id) REFERENCES integration (tenant_id, id) ON DELETE CASCADE)""",
]
