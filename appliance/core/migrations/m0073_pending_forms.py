"""Which contents of WebApps are still to be compressed as small as can be, and how often that has given an app further forms."""

STATEMENTS = [
    "ALTER TABLE webapp_form ADD COLUMN pending INTEGER NOT NULL DEFAULT 0",
    "CREATE INDEX webapp_form_pending ON webapp_form (tenant_id, app_id) WHERE pending = 1",
    "ALTER TABLE webapp ADD COLUMN forms INTEGER NOT NULL DEFAULT 0",
]
