"""Codes that come by e-mail, for whatever they open; those on their way to WebApps are asked for again."""

STATEMENTS = [
    """CREATE TABLE email_code (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, door TEXT NOT NULL,
        email TEXT NOT NULL, digest {blob} NOT NULL, state TEXT NOT NULL, tries INTEGER NOT NULL, created_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, id))""",
    "CREATE INDEX email_code_address ON email_code (tenant_id, door, email, created_at)",
    "CREATE INDEX email_code_created ON email_code (created_at)",
    "DELETE FROM webapp_sign_in WHERE kind = 'email'",
]
