"""Certificates of hosts with their sealed keys, ACME orders, accounts and challenges."""

STATEMENTS = [
    """CREATE TABLE certificate (
        host TEXT NOT NULL PRIMARY KEY, tenant_id TEXT REFERENCES tenant (id) ON DELETE CASCADE, origin TEXT NOT NULL,
        names TEXT NOT NULL, chain TEXT NOT NULL, private_key {blob} NOT NULL, key_kind TEXT NOT NULL, issuer TEXT NOT NULL,
        fingerprint TEXT NOT NULL, not_before BIGINT NOT NULL, not_after BIGINT NOT NULL, since BIGINT, renew_at BIGINT,
        asked_at BIGINT, updated_at BIGINT NOT NULL)""",
    """CREATE TABLE certificate_order (
        host TEXT NOT NULL PRIMARY KEY, tenant_id TEXT REFERENCES tenant (id) ON DELETE CASCADE, names TEXT NOT NULL,
        owner TEXT, order_url TEXT, private_key {blob}, answered TEXT NOT NULL, began_at BIGINT, due_at BIGINT NOT NULL,
        tries TEXT NOT NULL, failures INTEGER NOT NULL, problem TEXT)""",
    "CREATE INDEX certificate_order_due ON certificate_order (due_at)",
    """CREATE TABLE acme_account (
        directory TEXT NOT NULL PRIMARY KEY, private_key {blob} NOT NULL, uri TEXT, created_at BIGINT NOT NULL)""",
    """CREATE TABLE acme_challenge (
        token TEXT NOT NULL PRIMARY KEY, host TEXT NOT NULL, order_host TEXT NOT NULL, answer TEXT NOT NULL)""",
    "CREATE INDEX acme_challenge_order ON acme_challenge (order_host)",
]
