"""Under which grant a WebApp is served, and until when its routes answer."""

STATEMENTS = [
    # Without a digest what is published has not been looked at since it was, see `webapps.served_grants`.
    "ALTER TABLE webapp ADD COLUMN grant_digest TEXT",
    "ALTER TABLE webapp ADD COLUMN allowed_until BIGINT",
]
