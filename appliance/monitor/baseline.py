"""Tables of log lines, failures, counters, the audit trail, webhooks and alerts.

Part of the baseline and never edited; a migration changes tables (`appliance/migrations`).
"""

from appliance.core.database.full_text import index_statements

STATEMENTS = [
    """CREATE TABLE log_line (
        id {serial}, tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, at BIGINT NOT NULL,
        level INTEGER NOT NULL, source TEXT NOT NULL, message TEXT NOT NULL, fields TEXT NOT NULL, execution_id TEXT,
        process_id TEXT, step TEXT, request_id TEXT, words TEXT)""",
    "CREATE INDEX log_line_number ON log_line (tenant_id, id)",
    "CREATE INDEX log_line_time ON log_line (tenant_id, at, id)",
    "CREATE INDEX log_line_execution ON log_line (tenant_id, execution_id, at, id) WHERE execution_id IS NOT NULL",
    "CREATE INDEX log_line_unread ON log_line (id) WHERE words IS NULL",
    """CREATE TABLE failure (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, fingerprint TEXT NOT NULL,
        process_id TEXT NOT NULL, step TEXT NOT NULL, failure_class TEXT NOT NULL, code TEXT NOT NULL, message TEXT NOT NULL,
        state TEXT NOT NULL, count BIGINT NOT NULL, first_seen BIGINT NOT NULL, last_seen BIGINT NOT NULL,
        sample_execution_id TEXT NOT NULL, changed_at BIGINT, changed_by TEXT, settled_at BIGINT, settled_before BIGINT,
        PRIMARY KEY (tenant_id, id))""",
    "CREATE UNIQUE INDEX failure_fingerprint ON failure (tenant_id, fingerprint)",
    "CREATE INDEX failure_seen ON failure (tenant_id, last_seen)",
    """CREATE TABLE failure_occurrence (
        tenant_id TEXT NOT NULL, failure_id TEXT NOT NULL, execution_id TEXT NOT NULL, at BIGINT NOT NULL, retried_at BIGINT,
        recovered_at BIGINT,
        PRIMARY KEY (tenant_id, failure_id, execution_id),
        FOREIGN KEY (tenant_id, failure_id) REFERENCES failure (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX failure_occurrence_at ON failure_occurrence (tenant_id, failure_id, at)",
    "CREATE INDEX failure_occurrence_age ON failure_occurrence (tenant_id, at)",
    "CREATE INDEX failure_occurrence_of ON failure_occurrence (tenant_id, execution_id)",
    "CREATE INDEX failure_occurrence_open ON failure_occurrence (tenant_id, failure_id, at) WHERE recovered_at IS NULL",
    """CREATE TABLE tally (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, kind TEXT NOT NULL, at BIGINT NOT NULL,
        name TEXT NOT NULL, outcome TEXT NOT NULL, slot INTEGER NOT NULL, count BIGINT NOT NULL,
        sum_ms DOUBLE PRECISION NOT NULL, low_ms DOUBLE PRECISION, high_ms DOUBLE PRECISION,
        PRIMARY KEY (tenant_id, kind, at, name, outcome, slot))""",
    """CREATE TABLE audit_entry (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, seq BIGINT NOT NULL, at BIGINT NOT NULL,
        actor TEXT NOT NULL, action TEXT NOT NULL, subject TEXT NOT NULL, fields TEXT NOT NULL,
        previous_hash TEXT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (tenant_id, seq))""",
    """CREATE TABLE audit_chain (
        tenant_id TEXT PRIMARY KEY REFERENCES tenant (id) ON DELETE CASCADE, base_seq BIGINT NOT NULL,
        base_hash TEXT NOT NULL, last_seq BIGINT NOT NULL, last_hash TEXT NOT NULL)""",
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
    """CREATE TABLE alert (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, name TEXT NOT NULL,
        condition TEXT NOT NULL, actions TEXT NOT NULL, for_ms BIGINT NOT NULL, repeat_ms BIGINT NOT NULL,
        enabled INTEGER NOT NULL, silenced_until BIGINT, state TEXT NOT NULL, since BIGINT NOT NULL, turn INTEGER NOT NULL,
        told INTEGER NOT NULL, next_notice_at BIGINT, problem TEXT, armed_at BIGINT NOT NULL, revision INTEGER NOT NULL,
        created_at BIGINT NOT NULL, created_by TEXT NOT NULL, updated_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, id))""",
    """CREATE TABLE alert_event (
        tenant_id TEXT NOT NULL, id TEXT NOT NULL, alert_id TEXT NOT NULL, turn INTEGER NOT NULL, kind TEXT NOT NULL,
        at BIGINT NOT NULL, text TEXT NOT NULL, silenced INTEGER NOT NULL, told_at BIGINT, problems TEXT NOT NULL, told_to TEXT,
        PRIMARY KEY (tenant_id, id),
        FOREIGN KEY (tenant_id, alert_id) REFERENCES alert (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE UNIQUE INDEX alert_event_turn ON alert_event (tenant_id, alert_id, turn)",
    "CREATE INDEX alert_event_untold ON alert_event (id) WHERE told_at IS NULL",
    "CREATE INDEX alert_event_at ON alert_event (tenant_id, at)",
    """CREATE TABLE tally_mark (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, kind TEXT NOT NULL, width BIGINT NOT NULL,
        until BIGINT NOT NULL, since BIGINT NOT NULL DEFAULT 0,
        PRIMARY KEY (tenant_id, kind, width))""",
    """CREATE TABLE tally_late (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, kind TEXT NOT NULL, at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, kind, at))""",
]

_WIDE = """CREATE TABLE tally_wide (
    tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, kind TEXT NOT NULL, width BIGINT NOT NULL,
    name TEXT NOT NULL, at BIGINT NOT NULL, outcome TEXT NOT NULL, slot INTEGER NOT NULL, count BIGINT NOT NULL,
    sum_ms DOUBLE PRECISION NOT NULL, low_ms DOUBLE PRECISION, high_ms DOUBLE PRECISION,
    PRIMARY KEY (tenant_id, kind, width, name, at, outcome, slot))"""
_INDEX_SQLITE, _INDEX_POSTGRESQL = index_statements("log_line")
ON_SQLITE = [f"{_WIDE} WITHOUT ROWID", *_INDEX_SQLITE]
ON_POSTGRESQL = [_WIDE, *_INDEX_POSTGRESQL]
