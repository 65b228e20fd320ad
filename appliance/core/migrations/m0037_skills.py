"""Skills: what they are now, their sets of files, the files."""

STATEMENTS = [
    """CREATE TABLE skill (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, name TEXT NOT NULL, digest TEXT NOT NULL,
        created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, updated_by TEXT NOT NULL, approved_digest TEXT,
        granted_tools TEXT, granted_by TEXT, granted_login TEXT, granted_at BIGINT, PRIMARY KEY (tenant_id, name))""",
    """CREATE TABLE skill_version (
        tenant_id TEXT NOT NULL, name TEXT NOT NULL, digest TEXT NOT NULL, front TEXT NOT NULL, files INTEGER NOT NULL,
        bytes BIGINT NOT NULL, created_at BIGINT NOT NULL, created_by TEXT NOT NULL, used_at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, name, digest),
        FOREIGN KEY (tenant_id, name) REFERENCES skill (tenant_id, name) ON DELETE CASCADE)""",
    """CREATE TABLE skill_file (
        tenant_id TEXT NOT NULL, name TEXT NOT NULL, digest TEXT NOT NULL, path TEXT NOT NULL, sha256 TEXT NOT NULL,
        size BIGINT NOT NULL, is_text INTEGER NOT NULL, PRIMARY KEY (tenant_id, name, digest, path),
        FOREIGN KEY (tenant_id, name, digest) REFERENCES skill_version (tenant_id, name, digest) ON DELETE CASCADE)""",
    "CREATE INDEX skill_file_blob ON skill_file (tenant_id, sha256)",
]
