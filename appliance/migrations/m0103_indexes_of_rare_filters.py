"""Indexes for lists by filters that match few rows: starter, label and failure of executions, source and level of log lines.

Without them, the newest rows of the tenant are read one by one until a page is full, which is never if there are too few.
`execution_started_by` has the first three letters of the starter's kind, which tell the kinds apart and are written the same
for both databases.  `log_line_number` goes: a log is followed by the number of its lines, which is the table's own key.
"""

STATEMENTS = [
    "CREATE INDEX execution_started_by ON execution (tenant_id, (substr(actor, 1, 3)), created_at, id)",
    "DROP INDEX execution_label",
    "CREATE INDEX execution_label ON execution (tenant_id, label, created_at, id) WHERE label IS NOT NULL",
    "CREATE INDEX execution_failure_class ON execution (tenant_id, failure_class, created_at, id) WHERE failure_class IS NOT NULL",
    "DROP INDEX log_line_number",
    "CREATE INDEX log_line_source ON log_line (tenant_id, source, at, id)",
    "CREATE INDEX log_line_warning ON log_line (tenant_id, at, id) WHERE level >= 30",
]
