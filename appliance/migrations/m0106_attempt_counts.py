"""Sign-in attempts are counted in rows, so that processes on one server count together; on SQLite the table stays empty."""

STATEMENTS = [
    """CREATE TABLE attempt_count (
        digest {blob} PRIMARY KEY, used BIGINT NOT NULL, until BIGINT NOT NULL, ends BIGINT NOT NULL)""",
    "CREATE INDEX attempt_count_ends ON attempt_count (ends)",
]
