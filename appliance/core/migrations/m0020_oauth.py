"""Tokens of integrations that use OAuth 2, sealed, and the consents that are under way."""

STATEMENTS = [
    """CREATE TABLE integration_token (
        tenant_id TEXT NOT NULL, integration_id TEXT NOT NULL, audience TEXT NOT NULL, sealed {blob} NOT NULL, renew_at BIGINT,
        generation INTEGER NOT NULL, problem TEXT NOT NULL, lease_owner TEXT NOT NULL, lease_until BIGINT NOT NULL,
        connected_by TEXT NOT NULL, connected_at BIGINT, renewed_at BIGINT, PRIMARY KEY (tenant_id, integration_id),
        FOREIGN KEY (tenant_id, integration_id) REFERENCES integration (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE integration_consent (
        tenant_id TEXT NOT NULL, digest TEXT NOT NULL, integration_id TEXT NOT NULL, audience TEXT NOT NULL,
        sealed {blob} NOT NULL, redirect_uri TEXT NOT NULL, session TEXT NOT NULL, expires_at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, digest),
        FOREIGN KEY (tenant_id, integration_id) REFERENCES integration (tenant_id, id) ON DELETE CASCADE)""",
]
