"""Identity providers add, change and remove people and groups themselves (SCIM 2.0).

A person whom a provider has added is a row beside their account, and goes with it.  Tokens of providers are stored as digests.
"""

STATEMENTS = [
    """CREATE TABLE scim_token (
        id TEXT NOT NULL PRIMARY KEY, provider TEXT NOT NULL, digest {blob} NOT NULL UNIQUE, last4 TEXT NOT NULL,
        created_at BIGINT NOT NULL, last_used_at BIGINT, revoked_at BIGINT)""",
    """CREATE TABLE scim_user (
        user_id TEXT NOT NULL PRIMARY KEY REFERENCES person (id) ON DELETE CASCADE, provider TEXT NOT NULL,
        user_name TEXT NOT NULL, external_id TEXT, active BOOLEAN NOT NULL, attributes TEXT NOT NULL, disabled_at BIGINT,
        created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, version INTEGER NOT NULL)""",
    "CREATE INDEX scim_user_provider ON scim_user (provider, user_id)",
    "CREATE INDEX scim_user_external ON scim_user (provider, external_id)",
    """CREATE TABLE scim_group (
        id TEXT NOT NULL PRIMARY KEY, provider TEXT NOT NULL, display_name TEXT NOT NULL, name_key TEXT NOT NULL,
        external_id TEXT, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, version INTEGER NOT NULL,
        UNIQUE (provider, name_key))""",
    "CREATE INDEX scim_group_external ON scim_group (provider, external_id)",
    """CREATE TABLE scim_member (
        group_id TEXT NOT NULL REFERENCES scim_group (id) ON DELETE CASCADE,
        user_id TEXT NOT NULL REFERENCES scim_user (user_id) ON DELETE CASCADE, PRIMARY KEY (group_id, user_id))""",
    "CREATE INDEX scim_member_user ON scim_member (user_id)",
]
