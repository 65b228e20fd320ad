"""Whose hands a key is in: a program's or an agent's.  A key whose writes by MCP are on record is an agent's."""

# `replace` finds a text in both dialects without a pattern, whose `%` one of them takes for a parameter.
STATEMENTS = [
    "ALTER TABLE api_key ADD COLUMN kind TEXT NOT NULL DEFAULT 'service'",
    """
    UPDATE api_key SET kind = 'agent' WHERE id IN (
        SELECT substr(actor, 5) FROM audit_entry
        WHERE substr(actor, 1, 4) = 'key:' AND substr(action, 1, 7) = 'policy.' AND replace(fields, '"via":"mcp"', '') <> fields
    )
    """,
    """
    UPDATE api_key SET kind = 'agent' WHERE id IN (
        SELECT substr(actor, 5) FROM integration_call
        WHERE substr(actor, 1, 4) = 'key:' AND decision IS NOT NULL AND replace(decision, '"via":"mcp"', '') <> decision
    )
    """,
]
