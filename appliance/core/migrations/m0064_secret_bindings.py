"""Where each secret may go, and the uses of secrets from before, which the next start looks at once."""

STATEMENTS = [
    """CREATE TABLE secret_binding (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        kind TEXT NOT NULL,
        target TEXT NOT NULL,
        digest TEXT NOT NULL,
        hosts TEXT NOT NULL,
        bound_by TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        expires_at BIGINT,
        PRIMARY KEY (tenant_id, name, kind, target, digest, hosts)
    )""",
    """CREATE TABLE secret_use (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE,
        kind TEXT NOT NULL,
        target TEXT NOT NULL,
        PRIMARY KEY (tenant_id, kind, target)
    )""",
    """INSERT INTO secret_use (tenant_id, kind, target) SELECT tenant_id, 'integration', id FROM integration
        WHERE replace(settings, 'secrets.', '') <> settings""",
    """INSERT INTO secret_use (tenant_id, kind, target) SELECT tenant_id, 'llm-profile', id FROM llm_profile
        WHERE reference IS NOT NULL""",
    """INSERT INTO secret_use (tenant_id, kind, target) SELECT p.tenant_id, 'process', p.id FROM process p
        JOIN process_version v ON v.tenant_id = p.tenant_id AND v.process_id = p.id AND v.version = p.published_version
        WHERE replace(v.definition, 'secrets', '') <> v.definition""",
    """INSERT INTO secret_use (tenant_id, kind, target) SELECT a.tenant_id, 'webapp', a.id FROM webapp a
        JOIN webapp_version v ON v.tenant_id = a.tenant_id AND v.app_id = a.id AND v.number = a.published_version
        WHERE replace(v.settings, 'secret', '') <> v.settings""",
]
