"""People sign in to the console with identity providers.

An identity is a person's account at a provider.  A membership whose `source` is a provider follows the groups there.  A provider
sign-in is the root of sessions that the provider can end; the ids of used logout tokens are stored until the tokens expire.
"""

STATEMENTS = [
    """CREATE TABLE person_identity (
        issuer TEXT NOT NULL, subject TEXT NOT NULL, user_id TEXT NOT NULL REFERENCES person (id) ON DELETE CASCADE,
        provider TEXT NOT NULL, created_at BIGINT NOT NULL, used_at BIGINT NOT NULL, PRIMARY KEY (issuer, subject))""",
    "CREATE INDEX person_identity_user ON person_identity (user_id)",
    """CREATE TABLE provider_sign_in (
        root TEXT NOT NULL PRIMARY KEY, user_id TEXT NOT NULL REFERENCES person (id) ON DELETE CASCADE, issuer TEXT NOT NULL,
        subject TEXT NOT NULL, sid TEXT NOT NULL, created_at BIGINT NOT NULL)""",
    "CREATE INDEX provider_sign_in_user ON provider_sign_in (user_id)",
    "CREATE INDEX provider_sign_in_session ON provider_sign_in (issuer, sid)",
    """CREATE TABLE logout_token (
        issuer TEXT NOT NULL, token_id TEXT NOT NULL, expires_at BIGINT NOT NULL, PRIMARY KEY (issuer, token_id))""",
    "ALTER TABLE membership ADD COLUMN source TEXT NOT NULL DEFAULT ''",
]
