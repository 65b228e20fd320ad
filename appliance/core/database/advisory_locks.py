"""The numbers of advisory locks of a PostgreSQL server, which belong to names, and statements that take them."""

from hashlib import sha256

WRITER_LOCK = int.from_bytes(b"gos:writ", "big")  # The lock of all writes: shared ones share it.
SERVING_LOCK = int.from_bytes(b"gos:serv", "big")  # The lock that all processes which serve requests share.
_PRESENCE = b"gos:presence:"
THROW_AWAY = "gos_rehearsal_"
"""The beginning of the names of schemas that are thrown away, beside that of the appliance in the same database."""


def space_of(schema: str) -> str:
    """What separates the locks and notices of a schema that is thrown away from those of the appliance; empty for any other."""
    return schema if schema.startswith(THROW_AWAY) else ""


def lock_in(space: str, number: int) -> int:
    """The number of a lock of all processes in a space."""
    return lock_number(f"{space}:{number}") if space else number


def lock_number(owner: str) -> int:
    """The number of the advisory lock of the process with the instance id `owner`."""
    return int.from_bytes(sha256(_PRESENCE + owner.encode()).digest()[:8], "big")


def lock_statement(table: str, space: str = "") -> str:
    """The statement that waits for the advisory lock of a followed table, which ends with the transaction."""
    return f"SELECT pg_advisory_xact_lock({signed(lock_number(space + table))})"


def signed(number: int) -> int:
    """The number as the server takes it, a signed integer of 64 bits."""
    return number - (1 << 64) if number >= 1 << 63 else number
