"""Which of those who may decide a request were told of it by e-mail, and when."""

STATEMENTS = [
    """CREATE TABLE approval_told (
        tenant_id TEXT NOT NULL, approval_id TEXT NOT NULL, user_id TEXT NOT NULL, at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, approval_id, user_id),
        FOREIGN KEY (tenant_id, approval_id) REFERENCES approval (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX approval_told_last ON approval_told (tenant_id, user_id, at)",
    "CREATE INDEX approval_open_by ON approval (tenant_id, asked_by, status)",
]
