"""What waits for an owner to allow or refuse it: a key whose issuer has left, the grants of a process, the use of a secret."""

STATEMENTS = [
    """CREATE TABLE confirmation (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, kind TEXT NOT NULL,
        subject TEXT NOT NULL, digest TEXT NOT NULL, details TEXT NOT NULL, requested_by TEXT NOT NULL, created_at BIGINT NOT NULL,
        deadline BIGINT, state TEXT NOT NULL, decided_by TEXT, decided_at BIGINT, PRIMARY KEY (tenant_id, id),
        UNIQUE (tenant_id, kind, subject, digest))""",
    "CREATE INDEX confirmation_state ON confirmation (tenant_id, state, created_at)",
]
