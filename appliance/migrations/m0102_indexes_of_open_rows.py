"""Indexes that SQLite uses for unfinished executions, agents' runs and calls, and for deleting old firings and requests to people.

SQLite uses a partial index only if a query repeats its condition or one of the alternatives joined by OR; of a condition with IN it
recognizes no part, and read all executions instead.
"""

STATEMENTS = [
    "DROP INDEX execution_open",
    "CREATE INDEX execution_unfinished ON execution (status, next_run_at) WHERE finished_at IS NULL",
    "DROP INDEX agent_run_open",
    """CREATE INDEX agent_run_open ON agent_run (status, next_run_at)
        WHERE status = 'queued' OR status = 'running' OR status = 'waiting'""",
    "DROP INDEX integration_call_open",
    """CREATE INDEX integration_call_open ON integration_call (status, deadline_at)
        WHERE status = 'queued' OR status = 'running'""",
    "DROP INDEX firing_at",
    "CREATE INDEX firing_at ON firing (tenant_id, at)",
    "CREATE INDEX approval_closed ON approval (tenant_id, closed_at) WHERE closed_at IS NOT NULL",
]
