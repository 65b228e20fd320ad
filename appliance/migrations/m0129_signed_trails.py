"""Audit trails are sent to several destinations, each with a position of its own, and signed with keys of the appliance.

What was sent so far went to the syslog server.  `checkpoint_seq` and `checkpoint_at` say up to which entry and when a destination
has got the last signed checkpoint, `rejected` how many records it has refused for good.  `sealed` is the private part of a key; an
earlier key has none any more.
"""

STATEMENTS = [
    "ALTER TABLE audit_forward RENAME TO audit_forward_before",
    """CREATE TABLE audit_forward (
        tenant_id TEXT NOT NULL REFERENCES tenant (id) ON DELETE CASCADE, destination TEXT NOT NULL, seq BIGINT NOT NULL,
        fence INTEGER NOT NULL, lease_until BIGINT NOT NULL, checkpoint_seq BIGINT NOT NULL, checkpoint_at BIGINT NOT NULL,
        rejected BIGINT NOT NULL, PRIMARY KEY (tenant_id, destination))""",
    """INSERT INTO audit_forward (tenant_id, destination, seq, fence, lease_until, checkpoint_seq, checkpoint_at, rejected)
        SELECT tenant_id, 'syslog', seq, fence, lease_until, 0, 0, 0 FROM audit_forward_before""",
    "DROP TABLE audit_forward_before",
    """CREATE TABLE audit_key (
        number INTEGER NOT NULL PRIMARY KEY, fingerprint TEXT NOT NULL UNIQUE, public_key TEXT NOT NULL, sealed {blob},
        made_at BIGINT NOT NULL)""",
]
