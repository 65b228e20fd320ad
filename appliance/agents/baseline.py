"""Tables of agents, their runs and journals, and of skills.

Part of the baseline and never edited; a migration changes tables (`appliance/migrations`).
"""

STATEMENTS = [
    """CREATE TABLE skill (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, name TEXT NOT NULL, digest TEXT NOT NULL,
        created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, updated_by TEXT NOT NULL, approved_digest TEXT,
        granted_tools TEXT, granted_by TEXT, granted_login TEXT, granted_at BIGINT, PRIMARY KEY (tenant_id, name))""",
    """CREATE TABLE skill_version (
        tenant_id TEXT NOT NULL, name TEXT NOT NULL, digest TEXT NOT NULL, front TEXT NOT NULL, files INTEGER NOT NULL,
        bytes BIGINT NOT NULL, created_at BIGINT NOT NULL, created_by TEXT NOT NULL, used_at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, name, digest),
        FOREIGN KEY (tenant_id, name) REFERENCES skill (tenant_id, name) ON DELETE CASCADE)""",
    """CREATE TABLE skill_file (
        tenant_id TEXT NOT NULL, name TEXT NOT NULL, digest TEXT NOT NULL, path TEXT NOT NULL, sha256 TEXT NOT NULL,
        size BIGINT NOT NULL, is_text INTEGER NOT NULL, PRIMARY KEY (tenant_id, name, digest, path),
        FOREIGN KEY (tenant_id, name, digest) REFERENCES skill_version (tenant_id, name, digest) ON DELETE CASCADE)""",
    "CREATE INDEX skill_file_blob ON skill_file (tenant_id, sha256)",
    """CREATE TABLE agent (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, name TEXT NOT NULL,
        version INTEGER NOT NULL, digest TEXT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, id))""",
    """CREATE TABLE agent_version (
        tenant_id TEXT NOT NULL, agent_id TEXT NOT NULL, version INTEGER NOT NULL, definition TEXT NOT NULL,
        digest TEXT NOT NULL, created_at BIGINT NOT NULL, created_by TEXT NOT NULL,
        PRIMARY KEY (tenant_id, agent_id, version),
        FOREIGN KEY (tenant_id, agent_id) REFERENCES agent (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE agent_run (
        tenant_id TEXT NOT NULL, id TEXT NOT NULL, agent_id TEXT NOT NULL, version INTEGER NOT NULL, status TEXT NOT NULL,
        waiting_for TEXT, input TEXT NOT NULL, output TEXT, error TEXT, turns INTEGER NOT NULL, tool_calls INTEGER NOT NULL,
        input_tokens BIGINT NOT NULL, output_tokens BIGINT NOT NULL, cost_nano BIGINT NOT NULL, skills TEXT NOT NULL,
        tainted_by TEXT NOT NULL, idempotency TEXT, created_at BIGINT NOT NULL, started_at BIGINT, finished_at BIGINT,
        next_run_at BIGINT, active_ms BIGINT NOT NULL, owner TEXT, lease_until BIGINT NOT NULL, fence INTEGER NOT NULL,
        claims INTEGER NOT NULL, cancel_requested INTEGER NOT NULL, actor TEXT NOT NULL, scopes TEXT NOT NULL,
        request_id TEXT NOT NULL, execution_id TEXT, process_id TEXT, step TEXT, path TEXT, iteration TEXT, attempt INTEGER,
        granted TEXT, measured_by TEXT,
        PRIMARY KEY (tenant_id, id),
        FOREIGN KEY (tenant_id, agent_id) REFERENCES agent (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE UNIQUE INDEX agent_run_idempotency ON agent_run (tenant_id, idempotency) WHERE idempotency IS NOT NULL",
    "CREATE INDEX agent_run_listed ON agent_run (tenant_id, agent_id, created_at)",
    "CREATE INDEX agent_run_open ON agent_run (status, next_run_at) WHERE status IN ('queued', 'running', 'waiting')",
    "CREATE INDEX agent_run_finished ON agent_run (finished_at) WHERE finished_at IS NOT NULL",
    """CREATE UNIQUE INDEX agent_run_step ON agent_run (tenant_id, execution_id, path, iteration, attempt)
        WHERE execution_id IS NOT NULL""",
    """CREATE TABLE agent_journal (
        tenant_id TEXT NOT NULL, run_id TEXT NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL, turn INTEGER NOT NULL,
        call INTEGER NOT NULL, data TEXT NOT NULL, at BIGINT NOT NULL, PRIMARY KEY (tenant_id, run_id, number),
        FOREIGN KEY (tenant_id, run_id) REFERENCES agent_run (tenant_id, id) ON DELETE CASCADE)""",
]
