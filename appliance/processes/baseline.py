"""Tables of processes, versions, executions, their steps and journals, triggers and samples.

Part of the baseline and never edited; a migration changes tables (`appliance/migrations`).
"""

STATEMENTS = [
    """CREATE TABLE process (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, name TEXT NOT NULL,
        definition TEXT NOT NULL, files TEXT NOT NULL, draft_digest TEXT NOT NULL, published_version INTEGER,
        created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, paused_at BIGINT, source TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (tenant_id, id))""",
    """CREATE TABLE process_version (
        tenant_id TEXT NOT NULL, process_id TEXT NOT NULL, version INTEGER NOT NULL, definition TEXT NOT NULL,
        files TEXT NOT NULL, draft_digest TEXT NOT NULL, message TEXT NOT NULL, created_at BIGINT NOT NULL,
        created_by TEXT NOT NULL, grant_digest TEXT, allowed_until BIGINT,
        PRIMARY KEY (tenant_id, process_id, version),
        FOREIGN KEY (tenant_id, process_id) REFERENCES process (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE execution (
        tenant_id TEXT NOT NULL, id TEXT NOT NULL, process_id TEXT NOT NULL, version INTEGER NOT NULL, status TEXT NOT NULL,
        wait_reason TEXT, waiting_for TEXT, input TEXT NOT NULL, output TEXT, error TEXT, failure_class TEXT, label TEXT,
        retry_of TEXT, priority INTEGER NOT NULL, idempotency TEXT, created_at BIGINT NOT NULL, enqueued_at BIGINT NOT NULL,
        started_at BIGINT, finished_at BIGINT, next_run_at BIGINT, active_ms BIGINT NOT NULL, owner TEXT,
        lease_until BIGINT NOT NULL, fence INTEGER NOT NULL, claims INTEGER NOT NULL, cancel_requested INTEGER NOT NULL,
        actor TEXT NOT NULL, request_id TEXT NOT NULL, parent TEXT, depth INTEGER NOT NULL DEFAULT 0,
        rank BIGINT NOT NULL DEFAULT 0, expires_at BIGINT, slot TEXT, slot_limit INTEGER, slot_behaviour TEXT, first_label TEXT,
        aftermath TEXT, handles TEXT, tainted_by TEXT, failure_code TEXT, failed_step TEXT, trace TEXT, root TEXT,
        PRIMARY KEY (tenant_id, id),
        FOREIGN KEY (tenant_id, process_id) REFERENCES process (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE UNIQUE INDEX execution_idempotency ON execution (tenant_id, idempotency) WHERE idempotency IS NOT NULL",
    """CREATE INDEX execution_open ON execution (status, next_run_at)
        WHERE status IN ('scheduled', 'queued', 'running', 'waiting', 'cancelling')""",
    "CREATE INDEX execution_finished ON execution (finished_at) WHERE finished_at IS NOT NULL",
    "CREATE INDEX execution_ready ON execution (tenant_id, rank, id) WHERE status = 'queued' AND wait_reason IS NULL",
    """CREATE INDEX execution_held ON execution (tenant_id, process_id, wait_reason, slot, rank, id)
        WHERE status = 'queued' AND wait_reason IS NOT NULL""",
    """CREATE INDEX execution_slot ON execution (tenant_id, process_id, slot)
        WHERE slot IS NOT NULL AND finished_at IS NULL AND status <> 'scheduled' AND COALESCE(wait_reason, '') <> 'slot'""",
    """CREATE INDEX execution_expiry ON execution (expires_at)
        WHERE expires_at IS NOT NULL AND started_at IS NULL AND finished_at IS NULL""",
    # The index contains the columns that lists are filtered by and that do not change.
    "CREATE INDEX execution_newest ON execution (tenant_id, created_at, id, process_id, version, actor)",
    # Every status but `succeeded`, the most frequent one.  Written with OR because SQLite then recognizes from a single status that
    # it can use the index, which it does not with IN.
    """CREATE INDEX execution_state ON execution (tenant_id, status, created_at, id, enqueued_at) WHERE status = 'failed'
        OR status = 'cancelled' OR status = 'timed_out' OR status = 'expired' OR status = 'waiting' OR status = 'scheduled'
        OR status = 'queued' OR status = 'running' OR status = 'cancelling'""",
    "CREATE INDEX execution_label ON execution (tenant_id, label, id) WHERE label IS NOT NULL",
    "CREATE INDEX execution_took ON execution (tenant_id, (finished_at - started_at)) WHERE finished_at IS NOT NULL",
    "CREATE INDEX execution_failure_code ON execution (tenant_id, failure_code, id) WHERE failure_code IS NOT NULL",
    "CREATE INDEX execution_failed_step ON execution (tenant_id, failed_step, created_at, id) WHERE failed_step IS NOT NULL",
    "CREATE INDEX execution_retried ON execution (tenant_id, retry_of, id) WHERE retry_of IS NOT NULL",
    "CREATE INDEX execution_parent ON execution (tenant_id, parent, id) WHERE parent IS NOT NULL",
    "CREATE INDEX execution_listed ON execution (tenant_id, process_id, created_at, id)",
    "CREATE INDEX execution_family ON execution (tenant_id, root) WHERE root IS NOT NULL AND finished_at IS NULL",
    """CREATE TABLE step_run (
        tenant_id TEXT NOT NULL, execution_id TEXT NOT NULL, path TEXT NOT NULL, iteration TEXT NOT NULL, step TEXT NOT NULL,
        kind TEXT NOT NULL, status TEXT NOT NULL, attempt INTEGER NOT NULL, result_source TEXT NOT NULL, state TEXT, input TEXT,
        output TEXT, error TEXT, started_at BIGINT, finished_at BIGINT, next_run_at BIGINT, undo_order BIGINT, measured_by TEXT,
        PRIMARY KEY (tenant_id, execution_id, path, iteration),
        FOREIGN KEY (tenant_id, execution_id) REFERENCES execution (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE journal (
        tenant_id TEXT NOT NULL, execution_id TEXT NOT NULL, path TEXT NOT NULL, iteration TEXT NOT NULL,
        attempt INTEGER NOT NULL, call INTEGER NOT NULL, position INTEGER NOT NULL, method TEXT NOT NULL,
        args TEXT NOT NULL, ok INTEGER NOT NULL, answer TEXT, clock TEXT NOT NULL, at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, execution_id, path, iteration, attempt, call),
        FOREIGN KEY (tenant_id, execution_id) REFERENCES execution (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE execution_event (
        id {serial}, tenant_id TEXT NOT NULL, execution_id TEXT NOT NULL, at BIGINT NOT NULL, type TEXT NOT NULL,
        data TEXT NOT NULL,
        FOREIGN KEY (tenant_id, execution_id) REFERENCES execution (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX execution_event_order ON execution_event (tenant_id, execution_id, id)",
    """CREATE TABLE pending_call (
        tenant_id TEXT NOT NULL, execution_id TEXT NOT NULL, path TEXT NOT NULL, iteration TEXT NOT NULL,
        attempt INTEGER NOT NULL, call INTEGER NOT NULL, kind TEXT NOT NULL, token TEXT NOT NULL, name TEXT NOT NULL,
        due_at BIGINT NOT NULL, ok INTEGER, answer TEXT, created_at BIGINT NOT NULL, answered_at BIGINT, detail TEXT,
        measured_by TEXT,
        PRIMARY KEY (tenant_id, execution_id, path, iteration, attempt, call),
        FOREIGN KEY (tenant_id, execution_id) REFERENCES execution (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE UNIQUE INDEX pending_call_token ON pending_call (tenant_id, token)",
    """CREATE TABLE suspended_step (
        tenant_id TEXT NOT NULL, execution_id TEXT NOT NULL, path TEXT NOT NULL, iteration TEXT NOT NULL,
        attempt INTEGER NOT NULL, template TEXT NOT NULL, position INTEGER NOT NULL, pending TEXT NOT NULL,
        used_ms BIGINT NOT NULL, sealed {blob} NOT NULL, created_at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, execution_id, path, iteration),
        FOREIGN KEY (tenant_id, execution_id) REFERENCES execution (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE process_sample (
        tenant_id TEXT NOT NULL, process_id TEXT NOT NULL, name TEXT NOT NULL, input TEXT NOT NULL, steps TEXT NOT NULL,
        from_execution TEXT, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, process_id, name),
        FOREIGN KEY (tenant_id, process_id) REFERENCES process (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE execution_input (
        tenant_id TEXT NOT NULL, execution_id TEXT NOT NULL, number INTEGER NOT NULL, path TEXT NOT NULL, value TEXT NOT NULL,
        PRIMARY KEY (tenant_id, execution_id, number),
        FOREIGN KEY (tenant_id, execution_id) REFERENCES execution (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX execution_input_value ON execution_input (tenant_id, value, path, execution_id)",
    """CREATE TABLE trigger_state (
        tenant_id TEXT NOT NULL, process_id TEXT NOT NULL, trigger_id TEXT NOT NULL, position INTEGER NOT NULL, kind TEXT NOT NULL,
        settings TEXT NOT NULL, digest TEXT NOT NULL, next_due BIGINT, cursor TEXT, failed_in_row INTEGER NOT NULL,
        last_fired_at BIGINT, last_execution_id TEXT, last_error TEXT, last_error_at BIGINT, created_at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, process_id, trigger_id),
        FOREIGN KEY (tenant_id, process_id) REFERENCES process (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX trigger_state_due ON trigger_state (next_due) WHERE next_due IS NOT NULL",
    """CREATE TABLE trigger_source (
        tenant_id TEXT NOT NULL, kind TEXT NOT NULL, source TEXT NOT NULL, process_id TEXT NOT NULL, trigger_id TEXT NOT NULL,
        PRIMARY KEY (tenant_id, kind, source, process_id, trigger_id),
        FOREIGN KEY (tenant_id, process_id, trigger_id) REFERENCES trigger_state (tenant_id, process_id, trigger_id)
            ON DELETE CASCADE)""",
    "CREATE UNIQUE INDEX trigger_source_path ON trigger_source (tenant_id, source) WHERE kind = 'webhook'",
    "CREATE INDEX trigger_source_of ON trigger_source (tenant_id, process_id, trigger_id)",
    """CREATE TABLE firing (
        tenant_id TEXT NOT NULL, id TEXT NOT NULL, process_id TEXT NOT NULL, trigger_id TEXT NOT NULL, kind TEXT NOT NULL,
        event_key TEXT NOT NULL, status TEXT NOT NULL, at BIGINT NOT NULL, due_at BIGINT, event TEXT, content TEXT,
        depth INTEGER NOT NULL, attempts INTEGER NOT NULL, next_try_at BIGINT, execution_id TEXT, error TEXT,
        PRIMARY KEY (tenant_id, id),
        FOREIGN KEY (tenant_id, process_id) REFERENCES process (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE UNIQUE INDEX firing_once ON firing (tenant_id, process_id, trigger_id, event_key)",
    "CREATE INDEX firing_content ON firing (tenant_id, process_id, trigger_id, content) WHERE content IS NOT NULL",
    "CREATE INDEX firing_pending ON firing (next_try_at) WHERE next_try_at IS NOT NULL",
    "CREATE INDEX firing_listed ON firing (tenant_id, process_id, trigger_id, at)",
    "CREATE INDEX firing_at ON firing (at)",
    """CREATE TABLE step_cache (
        tenant_id TEXT NOT NULL, digest TEXT NOT NULL, process_id TEXT NOT NULL, execution_id TEXT NOT NULL, output TEXT NOT NULL,
        size BIGINT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, digest),
        FOREIGN KEY (tenant_id, process_id) REFERENCES process (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX step_cache_expiry ON step_cache (expires_at)",
    "CREATE INDEX step_cache_process ON step_cache (tenant_id, process_id)",
    "CREATE TABLE machine_clock (boot_id TEXT PRIMARY KEY, apart_ms BIGINT NOT NULL)",
]
