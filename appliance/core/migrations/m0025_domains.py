"""Domains of WebApps: claims of a tenant, the names that are held for the whole appliance, and those released lately.

A claim is a tenant's own; only what it has proven becomes a row of `domain_name`, whose key no second tenant can have.
A tombstone outlives its tenant.  `domain_table` counts the changes of what is served, so that every process sees that there
is something to read.
"""

STATEMENTS = [
    """CREATE TABLE domain (
        tenant_id TEXT NOT NULL, host TEXT NOT NULL, app_id TEXT NOT NULL, state TEXT NOT NULL, method TEXT NOT NULL,
        token TEXT NOT NULL, redirect_from TEXT, is_primary BOOLEAN NOT NULL, records TEXT NOT NULL, error TEXT,
        created_at BIGINT NOT NULL, created_by TEXT NOT NULL, verified_at BIGINT, leads_here BOOLEAN, failing_since BIGINT,
        told_at BIGINT, checks INTEGER NOT NULL, tries INTEGER NOT NULL, checked_at BIGINT, next_check_at BIGINT,
        certificate_state TEXT, certificate_error TEXT, certificate_next_try BIGINT, certificate_not_after BIGINT,
        PRIMARY KEY (tenant_id, host),
        FOREIGN KEY (tenant_id, app_id) REFERENCES webapp (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX domain_app ON domain (tenant_id, app_id)",
    "CREATE INDEX domain_due ON domain (next_check_at)",
    """CREATE TABLE domain_name (
        name TEXT PRIMARY KEY, tenant_id TEXT NOT NULL, host TEXT NOT NULL,
        FOREIGN KEY (tenant_id, host) REFERENCES domain (tenant_id, host) ON DELETE CASCADE)""",
    "CREATE TABLE domain_tombstone (name TEXT PRIMARY KEY, released_by TEXT NOT NULL, released_at BIGINT NOT NULL)",
    "CREATE TABLE domain_table (id INTEGER PRIMARY KEY, version BIGINT NOT NULL)",
    "INSERT INTO domain_table (id, version) VALUES (1, 0)",
]
