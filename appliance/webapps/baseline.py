"""Tables of WebApps, their versions, files, publications, domains, certificates, visits and traffic.

A file names its content before that has been sent, so it refers to the blob without a foreign key: `Blobs.acquire` and the list
of holders keep it.  A domain is a tenant's claim; only a verified one gets a row in `domain_name`, whose key no other tenant can
have.  A tombstone outlives its tenant.  `domain_table` counts changes, so that every process notices that there is something to
read.  The salt of a day makes its visitors distinguishable; it is deleted after the day, so that nobody can identify them later.

Part of the baseline and never edited; a migration changes tables (`appliance/migrations`).
"""

STATEMENTS = [
    """CREATE TABLE webapp (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, name TEXT NOT NULL,
        description TEXT NOT NULL, published_version INTEGER, last_version INTEGER NOT NULL, created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL, grant_digest TEXT, allowed_until BIGINT, forms INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (tenant_id, id))""",
    """CREATE TABLE webapp_version (
        tenant_id TEXT NOT NULL, app_id TEXT NOT NULL, number INTEGER NOT NULL, state TEXT NOT NULL, message TEXT NOT NULL,
        source TEXT NOT NULL, settings TEXT NOT NULL, rules TEXT NOT NULL, files INTEGER NOT NULL, bytes BIGINT NOT NULL,
        reason TEXT, created_at BIGINT NOT NULL, created_by TEXT NOT NULL, published_at BIGINT,
        PRIMARY KEY (tenant_id, app_id, number),
        FOREIGN KEY (tenant_id, app_id) REFERENCES webapp (tenant_id, id) ON DELETE CASCADE)""",
    """CREATE TABLE webapp_file (
        tenant_id TEXT NOT NULL, app_id TEXT NOT NULL, number INTEGER NOT NULL, path TEXT NOT NULL, sha256 TEXT NOT NULL,
        size BIGINT NOT NULL, PRIMARY KEY (tenant_id, app_id, number, path),
        FOREIGN KEY (tenant_id, app_id, number) REFERENCES webapp_version (tenant_id, app_id, number) ON DELETE CASCADE)""",
    "CREATE INDEX webapp_file_blob ON webapp_file (tenant_id, sha256)",
    """CREATE TABLE webapp_form (
        tenant_id TEXT NOT NULL, app_id TEXT NOT NULL, content TEXT NOT NULL, encoding TEXT NOT NULL, sha256 TEXT NOT NULL,
        size BIGINT NOT NULL, pending INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (tenant_id, app_id, content, encoding),
        FOREIGN KEY (tenant_id, app_id) REFERENCES webapp (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX webapp_form_blob ON webapp_form (tenant_id, sha256)",
    "CREATE INDEX webapp_form_pending ON webapp_form (tenant_id, app_id) WHERE pending = 1",
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
    """CREATE TABLE webapp_publication (
        tenant_id TEXT NOT NULL, app_id TEXT NOT NULL, number INTEGER NOT NULL, state TEXT NOT NULL, previous INTEGER NOT NULL,
        before_at BIGINT, checks TEXT NOT NULL, reason TEXT, started_by TEXT NOT NULL, owner TEXT NOT NULL, fence INTEGER NOT NULL,
        claims INTEGER NOT NULL, lease_until BIGINT NOT NULL, started_at BIGINT NOT NULL, ended_at BIGINT,
        PRIMARY KEY (tenant_id, app_id, number),
        FOREIGN KEY (tenant_id, app_id, number) REFERENCES webapp_version (tenant_id, app_id, number) ON DELETE CASCADE)""",
    "CREATE INDEX webapp_publication_state ON webapp_publication (state)",
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
    """CREATE TABLE webapp_request (
        id {serial}, tenant_id TEXT NOT NULL, app_id TEXT NOT NULL, at BIGINT NOT NULL, method TEXT NOT NULL, path TEXT NOT NULL,
        status INTEGER NOT NULL, bytes BIGINT NOT NULL, ms DOUBLE PRECISION NOT NULL, address TEXT NOT NULL, agent TEXT NOT NULL,
        referrer TEXT NOT NULL, visitor_kind TEXT NOT NULL, visitor TEXT NOT NULL, route TEXT, execution_id TEXT,
        FOREIGN KEY (tenant_id, app_id) REFERENCES webapp (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX webapp_request_of ON webapp_request (tenant_id, app_id, at, id)",
    "CREATE INDEX webapp_request_at ON webapp_request (tenant_id, at)",
    """CREATE TABLE webapp_traffic (
        tenant_id TEXT NOT NULL, app_id TEXT NOT NULL, day BIGINT NOT NULL, requests BIGINT NOT NULL, bytes BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, app_id, day),
        FOREIGN KEY (tenant_id, app_id) REFERENCES webapp (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE TABLE webapp_salt (day BIGINT PRIMARY KEY, salt TEXT NOT NULL)",
]
