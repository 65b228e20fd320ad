"""Tables of integrations, their calls, circuit breakers, actions and tokens.

Part of the baseline and never edited; a migration changes tables (`appliance/migrations`).
"""

STATEMENTS = [
    """CREATE TABLE integration (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, name TEXT NOT NULL,
        connector TEXT NOT NULL, settings TEXT NOT NULL, sealed {blob} NOT NULL, version INTEGER NOT NULL,
        created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, checked_at BIGINT, check_ok INTEGER, check_message TEXT,
        failed_in_row INTEGER NOT NULL DEFAULT 0, concurrency INTEGER NOT NULL DEFAULT 16,
        PRIMARY KEY (tenant_id, id))""",
    """CREATE TABLE integration_call (
        tenant_id TEXT NOT NULL, id TEXT NOT NULL, integration_id TEXT NOT NULL, connector TEXT NOT NULL, action TEXT NOT NULL,
        effect TEXT NOT NULL, status TEXT NOT NULL, outcome TEXT, input TEXT, output TEXT, output_kept INTEGER NOT NULL,
        error TEXT, idempotency_key TEXT, request_digest TEXT NOT NULL, sent_key TEXT NOT NULL, pending {blob},
        actor TEXT NOT NULL, request_id TEXT NOT NULL, execution_id TEXT, path TEXT, iteration TEXT, attempt INTEGER,
        host_call INTEGER, tries INTEGER NOT NULL, owner TEXT NOT NULL, deadline_at BIGINT NOT NULL, created_at BIGINT NOT NULL,
        started_at BIGINT, finished_at BIGINT, retry_of TEXT, traffic TEXT, approval_id TEXT, decision TEXT,
        PRIMARY KEY (tenant_id, id),
        FOREIGN KEY (tenant_id, integration_id) REFERENCES integration (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE UNIQUE INDEX integration_call_key ON integration_call
        (tenant_id, integration_id, idempotency_key, request_digest) WHERE idempotency_key IS NOT NULL""",
    "CREATE INDEX integration_call_listed ON integration_call (tenant_id, integration_id, created_at)",
    """CREATE INDEX integration_call_open ON integration_call (status, deadline_at)
        WHERE status IN ('queued', 'running')""",
    "CREATE INDEX integration_call_finished ON integration_call (finished_at) WHERE finished_at IS NOT NULL",
    "CREATE UNIQUE INDEX integration_call_retry ON integration_call (tenant_id, retry_of) WHERE retry_of IS NOT NULL",
    "CREATE INDEX integration_call_at ON integration_call (tenant_id, created_at)",
    "CREATE INDEX integration_call_execution ON integration_call (tenant_id, execution_id) WHERE execution_id IS NOT NULL",
    """CREATE TABLE integration_circuit (
        tenant_id TEXT NOT NULL, integration_id TEXT NOT NULL, failures INTEGER NOT NULL, openings INTEGER NOT NULL,
        open_until BIGINT, probing_until BIGINT, held_until BIGINT, reason TEXT NOT NULL, changed_at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, integration_id),
        FOREIGN KEY (tenant_id, integration_id) REFERENCES integration (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE integration_discovery (
        tenant_id TEXT NOT NULL, integration_id TEXT NOT NULL, basis TEXT NOT NULL, digest TEXT NOT NULL,
        discovered_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, integration_id),
        FOREIGN KEY (tenant_id, integration_id) REFERENCES integration (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE integration_action (
        tenant_id TEXT NOT NULL, integration_id TEXT NOT NULL, name TEXT NOT NULL, summary TEXT NOT NULL, effect TEXT NOT NULL,
        packed {blob} NOT NULL, withheld TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (tenant_id, integration_id, name),
        FOREIGN KEY (tenant_id, integration_id) REFERENCES integration (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE integration_token (
        tenant_id TEXT NOT NULL, integration_id TEXT NOT NULL, audience TEXT NOT NULL, sealed {blob} NOT NULL, renew_at BIGINT,
        generation INTEGER NOT NULL, problem TEXT NOT NULL, lease_owner TEXT NOT NULL, lease_until BIGINT NOT NULL,
        connected_by TEXT NOT NULL, connected_at BIGINT, renewed_at BIGINT, PRIMARY KEY (tenant_id, integration_id),
        FOREIGN KEY (tenant_id, integration_id) REFERENCES integration (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE integration_consent (
        tenant_id TEXT NOT NULL, digest TEXT NOT NULL, integration_id TEXT NOT NULL, audience TEXT NOT NULL,
        sealed {blob} NOT NULL, redirect_uri TEXT NOT NULL, session TEXT NOT NULL, expires_at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, digest),
        FOREIGN KEY (tenant_id, integration_id) REFERENCES integration (tenant_id, id) ON DELETE CASCADE)""",
]
