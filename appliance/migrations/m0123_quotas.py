"""Tenants have quotas: those set for a tenant, the counts of a day, the warnings given, and when a sandbox tenant expires."""

STATEMENTS = [
    """CREATE TABLE tenant_quota (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, name TEXT NOT NULL, amount BIGINT,
        set_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, name))""",
    """CREATE TABLE quota_use (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, name TEXT NOT NULL, day BIGINT NOT NULL,
        stripe INTEGER NOT NULL, used BIGINT NOT NULL, PRIMARY KEY (tenant_id, name, day, stripe))""",
    """CREATE TABLE quota_notice (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, name TEXT NOT NULL, period BIGINT NOT NULL,
        at BIGINT NOT NULL, PRIMARY KEY (tenant_id, name, period))""",
    """CREATE TABLE tenant_expiry (
        tenant_id TEXT PRIMARY KEY REFERENCES tenant (id) ON DELETE CASCADE, expires_at BIGINT NOT NULL)""",
]
