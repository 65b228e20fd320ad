"""People prove who they are with a second factor: passkeys, apps that show codes, and recovery codes.

`used_challenge` has the challenges that were signed, so that no signature counts twice.  `step_up` has forms that wait for a fresh
proof; the time of a sign-in's last proof is with its sessions.
"""

STATEMENTS = [
    """CREATE TABLE second_factor (
        id TEXT PRIMARY KEY, user_id TEXT NOT NULL REFERENCES person (id) ON DELETE CASCADE, kind TEXT NOT NULL,
        name TEXT NOT NULL, credential_id {blob} UNIQUE, public_key {blob}, sealed {blob}, counter BIGINT NOT NULL,
        created_at BIGINT NOT NULL, used_at BIGINT)""",
    "CREATE INDEX second_factor_user ON second_factor (user_id)",
    """CREATE TABLE recovery_code (
        digest {blob} PRIMARY KEY, user_id TEXT NOT NULL REFERENCES person (id) ON DELETE CASCADE,
        created_at BIGINT NOT NULL, used_at BIGINT)""",
    "CREATE INDEX recovery_code_user ON recovery_code (user_id)",
    "CREATE TABLE used_challenge (digest {blob} PRIMARY KEY, expires_at BIGINT NOT NULL)",
    "CREATE INDEX used_challenge_expires ON used_challenge (expires_at)",
    """CREATE TABLE step_up (
        digest {blob} PRIMARY KEY, user_id TEXT NOT NULL REFERENCES person (id) ON DELETE CASCADE, root TEXT NOT NULL,
        tenant_id TEXT REFERENCES tenant (id) ON DELETE CASCADE, target TEXT NOT NULL, form TEXT NOT NULL, proven_by TEXT NOT NULL,
        created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, sent_at BIGINT)""",
    "CREATE INDEX step_up_user ON step_up (user_id)",
    "ALTER TABLE session ADD COLUMN proven_at BIGINT NOT NULL DEFAULT 0",
]
