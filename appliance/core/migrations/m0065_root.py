"""From which execution another one descends: those that are not finished are counted, so that no family grows without end."""

STATEMENTS = [
    "ALTER TABLE execution ADD COLUMN root TEXT",
    "CREATE INDEX execution_family ON execution (tenant_id, root) WHERE root IS NOT NULL AND finished_at IS NULL",
]
