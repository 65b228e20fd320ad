"""What the runs of agents use of language models, by profile and day."""

STATEMENTS = [
    "ALTER TABLE llm_reservation ADD COLUMN run_id TEXT",
    """CREATE TABLE llm_run_usage (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, run_id TEXT NOT NULL, profile TEXT NOT NULL,
        day TEXT NOT NULL, calls BIGINT NOT NULL, input_tokens BIGINT NOT NULL, output_tokens BIGINT NOT NULL,
        cost_nano BIGINT NOT NULL, PRIMARY KEY (tenant_id, run_id, profile, day))""",
    "CREATE INDEX llm_run_usage_day ON llm_run_usage (day)",
]
