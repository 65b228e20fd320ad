"""Executions are found by time, state, label, error, duration, and by what they retry and belong to, however many there are."""

_BACKFILL = "UPDATE execution SET failure_code = {code}, failed_step = {step} WHERE error IS NOT NULL"
STATEMENTS = [
    "ALTER TABLE execution ADD COLUMN failure_code TEXT",
    "ALTER TABLE execution ADD COLUMN failed_step TEXT",
    # What does not change of an execution and lists are narrowed by stands in the index itself.
    "CREATE INDEX execution_newest ON execution (tenant_id, created_at, id, process_id, version, actor)",
    # Every state but the most frequent, of which the newest are found at once.  Written with OR: SQLite sees from one state
    # that such an index has it, from a list it does not.
    """CREATE INDEX execution_state ON execution (tenant_id, status, created_at, id, enqueued_at) WHERE status = 'failed'
        OR status = 'cancelled' OR status = 'timed_out' OR status = 'expired' OR status = 'waiting' OR status = 'scheduled'
        OR status = 'queued' OR status = 'running' OR status = 'cancelling'""",
    "CREATE INDEX execution_label ON execution (tenant_id, label, id) WHERE label IS NOT NULL",
    "CREATE INDEX execution_took ON execution (tenant_id, (finished_at - started_at)) WHERE finished_at IS NOT NULL",
    "CREATE INDEX execution_failure_code ON execution (tenant_id, failure_code, id) WHERE failure_code IS NOT NULL",
    "CREATE INDEX execution_failed_step ON execution (tenant_id, failed_step, created_at, id) WHERE failed_step IS NOT NULL",
    "CREATE INDEX execution_retried ON execution (tenant_id, retry_of, id) WHERE retry_of IS NOT NULL",
    "CREATE INDEX execution_parent ON execution (tenant_id, parent, id) WHERE parent IS NOT NULL",
]
ON_SQLITE = [_BACKFILL.format(code="json_extract(error, '$.code')", step="json_extract(error, '$.step')")]
# PostgreSQL refuses to read JSON with escapes that its text cannot hold, U+0000 and halves of a pair, wherever they stand in it; in
# codes and names of steps there are none. A backslash that is itself escaped begins no escape: pairs of them are kept.
_READABLE = r"CAST(regexp_replace(error, '(\\\\)|\\u(0000|[dD][89a-fA-F][0-9a-fA-F][0-9a-fA-F])', '\1', 'g') AS JSON)"
ON_POSTGRESQL = [_BACKFILL.format(code=f"{_READABLE} ->> 'code'", step=f"{_READABLE} ->> 'step'")]
