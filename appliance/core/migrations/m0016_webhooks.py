"""Outbound webhooks: who is told, the outbox of what they are told, and how often in a row an integration failed."""

STATEMENTS = [
    """CREATE TABLE webhook (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, url TEXT NOT NULL,
        events TEXT NOT NULL, description TEXT NOT NULL, state TEXT NOT NULL, disabled_reason TEXT, sealed {blob} NOT NULL,
        sealed_old {blob}, old_until BIGINT, failed_in_row INTEGER NOT NULL, failing_since BIGINT, last_success_at BIGINT,
        created_at BIGINT NOT NULL, created_by TEXT NOT NULL, updated_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, id))""",
    """CREATE TABLE webhook_delivery (
        tenant_id TEXT NOT NULL, id TEXT NOT NULL, webhook_id TEXT NOT NULL, event TEXT NOT NULL, payload TEXT NOT NULL,
        status TEXT NOT NULL, tries INTEGER NOT NULL, attempts TEXT NOT NULL, next_try_at BIGINT, give_up_at BIGINT NOT NULL,
        created_at BIGINT NOT NULL, finished_at BIGINT, PRIMARY KEY (tenant_id, id),
        FOREIGN KEY (tenant_id, webhook_id) REFERENCES webhook (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX webhook_delivery_due ON webhook_delivery (tenant_id, webhook_id, next_try_at) WHERE next_try_at IS NOT NULL",
    "CREATE INDEX webhook_delivery_listed ON webhook_delivery (tenant_id, webhook_id, created_at, id)",
    "CREATE INDEX webhook_delivery_at ON webhook_delivery (tenant_id, created_at)",
    "ALTER TABLE integration ADD COLUMN failed_in_row INTEGER NOT NULL DEFAULT 0",
]
