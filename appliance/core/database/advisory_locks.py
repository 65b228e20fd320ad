"""The numbers of advisory locks of a PostgreSQL server, which belong to names, and statements that take them."""

from hashlib import sha256

WRITER_LOCK = int.from_bytes(b"gos:writ", "big")  # The lock of all writes: shared ones share it.
SERVING_LOCK = int.from_bytes(b"gos:serv", "big")  # The lock that all processes which serve requests share.
_PRESENCE = b"gos:presence:"


def lock_number(owner: str) -> int:
    """The number of the advisory lock of the process with the instance id `owner`."""
    return int.from_bytes(sha256(_PRESENCE + owner.encode()).digest()[:8], "big")


def lock_statement(table: str) -> str:
    """The statement that waits for the advisory lock of a followed table, which ends with the transaction."""
    return f"SELECT pg_advisory_xact_lock({signed(lock_number(table))})"


def signed(number: int) -> int:
    """The number as the server takes it, a signed integer of 64 bits."""
    return number - (1 << 64) if number >= 1 << 63 else number
