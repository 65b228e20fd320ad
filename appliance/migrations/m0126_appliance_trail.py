"""The appliance has keys and an audit trail of its own, in the tables of tenants: this row owns them, and is no tenant.

Its id is no slug, so no host, address or person leads to it, and lists of tenants leave it out (`core.scope.APPLIANCE`).
"""

STATEMENTS = [
    "INSERT INTO tenant (id, name, kind, created_at) VALUES ('@appliance', 'The appliance itself', 'appliance', 0)",
]
