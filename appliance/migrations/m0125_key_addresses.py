"""The addresses that API keys are used from, so that a new one is noticed."""

STATEMENTS = [
    """CREATE TABLE key_address (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, key_id TEXT NOT NULL, address TEXT NOT NULL,
        first_at BIGINT NOT NULL, last_at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, key_id, address))""",
    "CREATE INDEX key_address_last ON key_address (last_at)",
]
