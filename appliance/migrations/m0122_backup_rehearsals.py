"""Rehearsals of restores are rows, so that one process makes one at a time, and every process shows their results."""

STATEMENTS = [
    """CREATE TABLE backup_rehearsal (
        number INTEGER PRIMARY KEY, state TEXT NOT NULL, source TEXT NOT NULL, made_at TEXT NOT NULL, machine TEXT NOT NULL,
        row_count BIGINT NOT NULL, contents BIGINT NOT NULL, sampled INTEGER NOT NULL, trails INTEGER NOT NULL,
        restore_ms BIGINT NOT NULL, start_ms BIGINT NOT NULL, problem TEXT, started_at BIGINT NOT NULL, owner TEXT,
        fence INTEGER NOT NULL, claims INTEGER NOT NULL, lease_until BIGINT NOT NULL)""",
    "CREATE UNIQUE INDEX backup_rehearsal_single ON backup_rehearsal (state) WHERE state = 'running'",
]
