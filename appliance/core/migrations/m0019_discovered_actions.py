"""Actions that an integration's system was found to offer, kept so that calls, types and lists need not ask again."""

STATEMENTS = [
    """CREATE TABLE integration_discovery (
        tenant_id TEXT NOT NULL, integration_id TEXT NOT NULL, basis TEXT NOT NULL, digest TEXT NOT NULL,
        discovered_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, integration_id),
        FOREIGN KEY (tenant_id, integration_id) REFERENCES integration (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE integration_action (
        tenant_id TEXT NOT NULL, integration_id TEXT NOT NULL, name TEXT NOT NULL, summary TEXT NOT NULL,
        effect TEXT NOT NULL, packed {blob} NOT NULL, PRIMARY KEY (tenant_id, integration_id, name),
        FOREIGN KEY (tenant_id, integration_id) REFERENCES integration (tenant_id, id) ON DELETE CASCADE)""",
]
