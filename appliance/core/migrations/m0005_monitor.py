"""What happened: log lines, grouped failures, counters over time and the audit trail."""

STATEMENTS = [
    """CREATE TABLE log_line (
        id {serial}, tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, at BIGINT NOT NULL,
        level INTEGER NOT NULL, source TEXT NOT NULL, message TEXT NOT NULL, fields TEXT NOT NULL,
        execution_id TEXT, process_id TEXT, step TEXT, request_id TEXT)""",
    "CREATE INDEX log_line_number ON log_line (tenant_id, id)",
    "CREATE INDEX log_line_time ON log_line (tenant_id, at, id)",
    "CREATE INDEX log_line_execution ON log_line (tenant_id, execution_id, at, id) WHERE execution_id IS NOT NULL",
    """CREATE TABLE failure (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, fingerprint TEXT NOT NULL,
        process_id TEXT NOT NULL, step TEXT NOT NULL, failure_class TEXT NOT NULL, code TEXT NOT NULL,
        message TEXT NOT NULL, state TEXT NOT NULL, count BIGINT NOT NULL, first_seen BIGINT NOT NULL,
        last_seen BIGINT NOT NULL, sample_execution_id TEXT NOT NULL, changed_at BIGINT, changed_by TEXT,
        PRIMARY KEY (tenant_id, id))""",
    "CREATE UNIQUE INDEX failure_fingerprint ON failure (tenant_id, fingerprint)",
    "CREATE INDEX failure_seen ON failure (tenant_id, last_seen)",
    """CREATE TABLE failure_occurrence (
        tenant_id TEXT NOT NULL, failure_id TEXT NOT NULL, execution_id TEXT NOT NULL, at BIGINT NOT NULL,
        retried_at BIGINT, PRIMARY KEY (tenant_id, failure_id, execution_id),
        FOREIGN KEY (tenant_id, failure_id) REFERENCES failure (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE tally (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, kind TEXT NOT NULL, at BIGINT NOT NULL,
        name TEXT NOT NULL, outcome TEXT NOT NULL, slot INTEGER NOT NULL, count BIGINT NOT NULL,
        sum_ms DOUBLE PRECISION NOT NULL, PRIMARY KEY (tenant_id, kind, at, name, outcome, slot))""",
    """CREATE TABLE audit_entry (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, seq BIGINT NOT NULL, at BIGINT NOT NULL,
        actor TEXT NOT NULL, action TEXT NOT NULL, subject TEXT NOT NULL, fields TEXT NOT NULL,
        previous_hash TEXT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (tenant_id, seq))""",
    """CREATE TABLE audit_chain (
        tenant_id TEXT PRIMARY KEY REFERENCES tenant (id) ON DELETE CASCADE, base_seq BIGINT NOT NULL,
        base_hash TEXT NOT NULL, last_seq BIGINT NOT NULL, last_hash TEXT NOT NULL)""",
]
