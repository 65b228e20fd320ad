"""Reviews of documents: what was to be looked at, by whom, and what each of them said."""

STATEMENTS = [
    """CREATE TABLE document_review (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, id TEXT NOT NULL, document_id TEXT NOT NULL,
        revision INTEGER NOT NULL, sha256 TEXT NOT NULL, needed INTEGER NOT NULL, reviewers TEXT NOT NULL, note TEXT NOT NULL,
        status TEXT NOT NULL, due_at BIGINT NOT NULL, requested_by TEXT NOT NULL, created_at BIGINT NOT NULL, closed_at BIGINT,
        PRIMARY KEY (tenant_id, id),
        FOREIGN KEY (tenant_id, document_id) REFERENCES document (tenant_id, id) ON DELETE CASCADE)""",
    "CREATE INDEX document_review_of ON document_review (tenant_id, document_id, created_at)",
    "CREATE INDEX document_review_due ON document_review (due_at) WHERE status = 'pending'",
    """CREATE TABLE document_vote (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, review_id TEXT NOT NULL, user_id TEXT NOT NULL,
        login TEXT NOT NULL, decision TEXT NOT NULL, comment TEXT NOT NULL, at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, review_id, user_id),
        FOREIGN KEY (tenant_id, review_id) REFERENCES document_review (tenant_id, id) ON DELETE CASCADE)""",
]
