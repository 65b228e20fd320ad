"""Profiles of language models, what calls under way may cost at most, and what was used by day and by execution."""

_SUMS = "calls BIGINT NOT NULL, input_tokens BIGINT NOT NULL, output_tokens BIGINT NOT NULL, cost_nano BIGINT NOT NULL"

STATEMENTS = [
    """CREATE TABLE llm_profile (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, settings TEXT NOT NULL,
        sealed {blob}, reference TEXT, key_at BIGINT, version INTEGER NOT NULL, created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, id))""",
    """CREATE TABLE llm_reservation (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, profile TEXT NOT NULL,
        execution_id TEXT, place TEXT, input_tokens BIGINT NOT NULL, output_tokens BIGINT NOT NULL, cost_nano BIGINT NOT NULL,
        at BIGINT NOT NULL, PRIMARY KEY (tenant_id, id))""",
    "CREATE INDEX llm_reservation_profile ON llm_reservation (tenant_id, profile)",
    "CREATE INDEX llm_reservation_at ON llm_reservation (at)",
    f"""CREATE TABLE llm_usage (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, profile TEXT NOT NULL, day TEXT NOT NULL, {_SUMS},
        PRIMARY KEY (tenant_id, profile, day))""",
    f"""CREATE TABLE llm_execution_usage (
        tenant_id TEXT NOT NULL, execution_id TEXT NOT NULL, profile TEXT NOT NULL, {_SUMS},
        PRIMARY KEY (tenant_id, execution_id, profile),
        FOREIGN KEY (tenant_id, execution_id) REFERENCES execution (tenant_id, id) ON DELETE CASCADE)""",
]
