"""Tables of model profiles, reservations of budgets, and usage by day, execution and agent run.

Part of the baseline and never edited; a migration changes tables (`appliance/migrations`).
"""

STATEMENTS = [
    """CREATE TABLE llm_profile (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, settings TEXT NOT NULL,
        sealed {blob}, reference TEXT, key_at BIGINT, version INTEGER NOT NULL, created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, id))""",
    """CREATE TABLE llm_reservation (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, profile TEXT NOT NULL,
        execution_id TEXT, place TEXT, input_tokens BIGINT NOT NULL, output_tokens BIGINT NOT NULL, cost_nano BIGINT NOT NULL,
        at BIGINT NOT NULL, run_id TEXT,
        PRIMARY KEY (tenant_id, id))""",
    "CREATE INDEX llm_reservation_profile ON llm_reservation (tenant_id, profile)",
    "CREATE INDEX llm_reservation_at ON llm_reservation (at)",
    """CREATE TABLE llm_usage (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, profile TEXT NOT NULL, day TEXT NOT NULL,
        calls BIGINT NOT NULL, input_tokens BIGINT NOT NULL, output_tokens BIGINT NOT NULL, cost_nano BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, profile, day))""",
    """CREATE TABLE llm_execution_usage (
        tenant_id TEXT NOT NULL, execution_id TEXT NOT NULL, profile TEXT NOT NULL,
        calls BIGINT NOT NULL, input_tokens BIGINT NOT NULL, output_tokens BIGINT NOT NULL, cost_nano BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, execution_id, profile),
        FOREIGN KEY (tenant_id, execution_id) REFERENCES execution (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE llm_run_usage (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, run_id TEXT NOT NULL, profile TEXT NOT NULL,
        day TEXT NOT NULL, calls BIGINT NOT NULL, input_tokens BIGINT NOT NULL, output_tokens BIGINT NOT NULL,
        cost_nano BIGINT NOT NULL, PRIMARY KEY (tenant_id, run_id, profile, day))""",
    "CREATE INDEX llm_run_usage_day ON llm_run_usage (day)",
]
