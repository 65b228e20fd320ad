"""Which solution brought an item into a tenant: what a prune may take away again."""

STATEMENTS = [
    """CREATE TABLE solution_item (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, solution TEXT NOT NULL, kind TEXT NOT NULL,
        item_id TEXT NOT NULL, born_at TEXT NOT NULL, PRIMARY KEY (tenant_id, solution, kind, item_id))""",
]
