"""What a destination has refused of an audit trail: among which entries, when last, why, and how much an administrator has seen.

What was refused before this release was among all entries sent until then, and no later than the last checkpoint.
"""

STATEMENTS = [
    "ALTER TABLE audit_forward ADD COLUMN rejected_first BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE audit_forward ADD COLUMN rejected_last BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE audit_forward ADD COLUMN rejected_at BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE audit_forward ADD COLUMN rejected_reason TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE audit_forward ADD COLUMN acknowledged BIGINT NOT NULL DEFAULT 0",
    "UPDATE audit_forward SET rejected_first = 1, rejected_last = seq, rejected_at = checkpoint_at WHERE rejected > 0",
]
