"""Kill switches of several kinds, what rules and runs have used up, previews that were seen, and the decision behind a call."""

STATEMENTS = [
    """CREATE TABLE switched_off (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, kind TEXT NOT NULL, name TEXT NOT NULL,
        reason TEXT NOT NULL, set_by TEXT NOT NULL, set_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, kind, name))""",
    """INSERT INTO switched_off (tenant_id, kind, name, reason, set_by, set_at)
        SELECT tenant_id, 'integration', integration_id, reason, set_by, set_at FROM kill_switch""",
    "DROP TABLE kill_switch",
    """CREATE TABLE governed_use (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, name TEXT NOT NULL, span TEXT NOT NULL,
        calls BIGINT NOT NULL, tokens BIGINT NOT NULL, micro_usd BIGINT NOT NULL, used_at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, name, span))""",
    """CREATE TABLE action_preview (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, digest TEXT NOT NULL, actor TEXT NOT NULL,
        at BIGINT NOT NULL, PRIMARY KEY (tenant_id, digest, actor))""",
    "ALTER TABLE integration_call ADD COLUMN approval_id TEXT",
    "ALTER TABLE integration_call ADD COLUMN decision TEXT",
]
