"""API keys rest on their issuer, and a browser's sessions on the sign-in they came from.

`issuer` is whose authority a key rests on. `created_by` stays the record of who made it. A key that had rotated itself keeps the
issuer of the key it replaced, and keys that a replaced key had issued rest on its newest successor, as they do from now on.
`orphan_until` 0 marks keys of the time before: the first start looks whether their issuer is gone already.
"""

_ISSUERS = """WITH RECURSIVE origin (id, issuer) AS (
        SELECT id, created_by FROM api_key WHERE rotated_from IS NULL OR created_by <> 'key:' || rotated_from
        UNION ALL
        SELECT next.id, origin.issuer FROM api_key AS next JOIN origin ON origin.id = next.rotated_from
            WHERE next.created_by = 'key:' || next.rotated_from)
    UPDATE api_key SET issuer = COALESCE((SELECT origin.issuer FROM origin WHERE origin.id = api_key.id), created_by)"""
_SUCCESSORS = """WITH RECURSIVE successor (id, newest) AS (
        SELECT rotated_from, id FROM api_key WHERE rotated_from IS NOT NULL
        UNION
        SELECT successor.id, next.id FROM api_key AS next JOIN successor ON next.rotated_from = successor.newest)
    UPDATE api_key SET issuer = COALESCE(
        (SELECT 'key:' || MAX(successor.newest) FROM successor WHERE 'key:' || successor.id = api_key.issuer), issuer)"""
STATEMENTS = [
    "ALTER TABLE api_key ADD COLUMN issuer TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE api_key ADD COLUMN orphaned_at BIGINT",
    "ALTER TABLE api_key ADD COLUMN orphan_until BIGINT",
    _ISSUERS,
    _SUCCESSORS,
    "UPDATE api_key SET orphan_until = 0",
    "ALTER TABLE session ADD COLUMN root TEXT NOT NULL DEFAULT ''",
]
