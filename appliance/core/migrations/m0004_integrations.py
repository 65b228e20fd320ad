"""Integrations and the calls made through them."""

STATEMENTS = [
    """CREATE TABLE integration (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, name TEXT NOT NULL,
        connector TEXT NOT NULL, settings TEXT NOT NULL, sealed {blob} NOT NULL, version INTEGER NOT NULL,
        created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, checked_at BIGINT, check_ok INTEGER,
        check_message TEXT, PRIMARY KEY (tenant_id, id))""",
    """CREATE TABLE integration_call (
        tenant_id TEXT NOT NULL, id TEXT NOT NULL, integration_id TEXT NOT NULL, connector TEXT NOT NULL,
        action TEXT NOT NULL, effect TEXT NOT NULL, status TEXT NOT NULL, outcome TEXT, input TEXT, output TEXT,
        output_kept INTEGER NOT NULL, error TEXT, idempotency_key TEXT, request_digest TEXT NOT NULL,
        sent_key TEXT NOT NULL, pending {blob}, actor TEXT NOT NULL, request_id TEXT NOT NULL, execution_id TEXT,
        path TEXT, iteration TEXT, attempt INTEGER, host_call INTEGER, tries INTEGER NOT NULL, owner TEXT NOT NULL,
        deadline_at BIGINT NOT NULL, created_at BIGINT NOT NULL, started_at BIGINT, finished_at BIGINT,
        PRIMARY KEY (tenant_id, id),
        FOREIGN KEY (tenant_id, integration_id) REFERENCES integration (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE UNIQUE INDEX integration_call_key ON integration_call
        (tenant_id, integration_id, idempotency_key, request_digest) WHERE idempotency_key IS NOT NULL""",
    "CREATE INDEX integration_call_listed ON integration_call (tenant_id, integration_id, created_at)",
    """CREATE INDEX integration_call_open ON integration_call (status, deadline_at)
        WHERE status IN ('queued', 'running')""",
    "CREATE INDEX integration_call_finished ON integration_call (finished_at) WHERE finished_at IS NOT NULL",
]
