"""Service accounts: members of a tenant that are programs; their keys do not end with a person."""

STATEMENTS = [
    """CREATE TABLE service_account (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, title TEXT NOT NULL,
        description TEXT NOT NULL, scopes TEXT NOT NULL, responsible TEXT, created_by TEXT NOT NULL, created_at BIGINT NOT NULL,
        disabled_at BIGINT, deleted_at BIGINT,
        PRIMARY KEY (tenant_id, id))""",
]
