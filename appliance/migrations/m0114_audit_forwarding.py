"""How far each tenant's audit trail has been sent to the syslog server of `audit.syslog`, and which process sends it now."""

STATEMENTS = [
    """CREATE TABLE audit_forward (
        tenant_id TEXT PRIMARY KEY REFERENCES tenant (id) ON DELETE CASCADE, seq BIGINT NOT NULL,
        fence INTEGER NOT NULL, lease_until BIGINT NOT NULL)""",
]
