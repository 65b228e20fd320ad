"""Table of the items that a solution brought into a tenant, which a prune may remove.

Part of the baseline and never edited; a migration changes tables (`appliance/migrations`).
"""

STATEMENTS = [
    """CREATE TABLE solution_item (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, solution TEXT NOT NULL, kind TEXT NOT NULL,
        item_id TEXT NOT NULL, born_at TEXT NOT NULL, PRIMARY KEY (tenant_id, solution, kind, item_id))""",
]
