"""Backups of the whole appliance are rows, so that every process shows them, and one makes what another was making when it died.

`sealed` is the passphrase of a requested one until it is made; `machine` and `path` say where its file is.
"""

STATEMENTS = [
    """CREATE TABLE backup_job (
        number INTEGER PRIMARY KEY, kind TEXT NOT NULL, state TEXT NOT NULL, sealed {blob}, stage TEXT NOT NULL,
        done BIGINT NOT NULL, total BIGINT NOT NULL, machine TEXT NOT NULL, path TEXT NOT NULL, size BIGINT NOT NULL,
        row_count BIGINT NOT NULL, contents BIGINT NOT NULL, encrypted INTEGER NOT NULL, problem TEXT,
        started_at BIGINT NOT NULL, owner TEXT, fence INTEGER NOT NULL, claims INTEGER NOT NULL, lease_until BIGINT NOT NULL)""",
    "CREATE UNIQUE INDEX backup_job_single ON backup_job (state) WHERE state = 'running'",
]
