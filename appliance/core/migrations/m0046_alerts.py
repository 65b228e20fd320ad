"""Alerts: a condition that is looked at again and again, and what came of it; each turn is kept once."""

STATEMENTS = [
    """CREATE TABLE alert (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, name TEXT NOT NULL,
        condition TEXT NOT NULL, actions TEXT NOT NULL, for_ms BIGINT NOT NULL, repeat_ms BIGINT NOT NULL,
        enabled INTEGER NOT NULL, silenced_until BIGINT, state TEXT NOT NULL, since BIGINT NOT NULL, turn INTEGER NOT NULL,
        told INTEGER NOT NULL, next_notice_at BIGINT, problem TEXT, armed_at BIGINT NOT NULL, revision INTEGER NOT NULL,
        created_at BIGINT NOT NULL, created_by TEXT NOT NULL, updated_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, id))""",
    """CREATE TABLE alert_event (
        tenant_id TEXT NOT NULL, id TEXT NOT NULL, alert_id TEXT NOT NULL, turn INTEGER NOT NULL, kind TEXT NOT NULL,
        at BIGINT NOT NULL, text TEXT NOT NULL, silenced INTEGER NOT NULL, told_at BIGINT, problems TEXT NOT NULL,
        PRIMARY KEY (tenant_id, id),
        FOREIGN KEY (tenant_id, alert_id) REFERENCES alert (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE UNIQUE INDEX alert_event_turn ON alert_event (tenant_id, alert_id, turn)",
    "CREATE INDEX alert_event_untold ON alert_event (id) WHERE told_at IS NULL",
    "CREATE INDEX alert_event_at ON alert_event (tenant_id, at)",
    "CREATE INDEX failure_occurrence_at ON failure_occurrence (tenant_id, failure_id, at)",
]
