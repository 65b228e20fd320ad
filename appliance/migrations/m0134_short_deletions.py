"""Tenants that are being deleted, imported or reset are found by an index, as nothing of them may begin.

A deleted collection stays, under a name that nobody can use, until its entities are removed in many writes: `removal_lease` is then
the time until which a process does that (epoch ms).
"""

STATEMENTS = [
    "CREATE INDEX tenant_fenced ON tenant (id) WHERE closed_at IS NOT NULL OR reset_at IS NOT NULL",
    "ALTER TABLE collection ADD COLUMN removal_lease BIGINT",
    "CREATE INDEX collection_removal ON collection (removal_lease) WHERE removal_lease IS NOT NULL",
]
