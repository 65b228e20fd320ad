"""Visits of WebApps: the sessions of visitors, and what is under way until somebody has one."""

STATEMENTS = [
    """CREATE TABLE webapp_visit (
        tenant_id TEXT NOT NULL, id TEXT NOT NULL, app_id TEXT NOT NULL, digest {blob} NOT NULL, kind TEXT NOT NULL,
        subject TEXT NOT NULL, email TEXT NOT NULL, grounds TEXT NOT NULL, created_at BIGINT NOT NULL, seen_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, id),
        FOREIGN KEY (tenant_id, app_id) REFERENCES webapp (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE UNIQUE INDEX webapp_visit_digest ON webapp_visit (tenant_id, digest)",
    "CREATE INDEX webapp_visit_app ON webapp_visit (tenant_id, app_id, id)",
    "CREATE INDEX webapp_visit_subject ON webapp_visit (subject)",
    "CREATE INDEX webapp_visit_end ON webapp_visit (expires_at)",
    """CREATE TABLE webapp_sign_in (
        tenant_id TEXT NOT NULL, id TEXT NOT NULL, app_id TEXT NOT NULL, kind TEXT NOT NULL, subject TEXT NOT NULL,
        digest {blob} NOT NULL, state TEXT NOT NULL, tries INTEGER NOT NULL, created_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL, PRIMARY KEY (tenant_id, id),
        FOREIGN KEY (tenant_id, app_id) REFERENCES webapp (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX webapp_sign_in_subject ON webapp_sign_in (tenant_id, app_id, subject, created_at)",
    "CREATE INDEX webapp_sign_in_created ON webapp_sign_in (created_at)",
]
