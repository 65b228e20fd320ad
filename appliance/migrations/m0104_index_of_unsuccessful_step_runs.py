"""An index of the step runs that have not succeeded: what an execution waits for, what to close at its end, what its page shows.

An execution has thousands of step runs if a loop has thousands of items, and nearly all of them have succeeded.
"""

STATEMENTS = [
    "CREATE INDEX step_run_unsuccessful ON step_run (tenant_id, execution_id, path, iteration, status) WHERE status <> 'succeeded'"
]
