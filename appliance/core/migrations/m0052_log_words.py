"""Log lines are found by their words; those that are there already are read bit by bit, while the appliance runs."""

from appliance.core.database.full_text import index_statements

STATEMENTS = [
    "ALTER TABLE log_line ADD COLUMN words TEXT",
    "CREATE INDEX log_line_unread ON log_line (id) WHERE words IS NULL",
]
ON_SQLITE, ON_POSTGRESQL = index_statements("log_line")
