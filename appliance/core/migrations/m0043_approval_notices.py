"""Whether those who may decide a request were told of it by e-mail."""

STATEMENTS = [
    "ALTER TABLE approval ADD COLUMN notified_at BIGINT",
    "UPDATE approval SET notified_at = created_at",
    "CREATE INDEX approval_untold ON approval (status, notified_at)",
]
