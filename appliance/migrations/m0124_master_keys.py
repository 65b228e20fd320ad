"""Master keys have ids, so that one can follow another: which there are, and how far the sealing with the current one is.

`digests` is the key of all digests, sealed with this master key; it stays the same.
"""

STATEMENTS = [
    """CREATE TABLE master_key (
        id TEXT NOT NULL PRIMARY KEY, number INTEGER NOT NULL UNIQUE, digests {blob}, made_at BIGINT NOT NULL,
        current_from BIGINT NOT NULL, retired_at BIGINT, resealed_at BIGINT, resealed BIGINT NOT NULL DEFAULT 0,
        unreadable BIGINT NOT NULL DEFAULT 0, fence BIGINT NOT NULL DEFAULT 0, lease_until BIGINT NOT NULL DEFAULT 0)""",
]
