"""Databases of tests do not wait for the disk: there are thousands of them, and none has to survive a power failure."""

from appliance.core.database import sqlite

ORIGINAL_PRAGMAS = sqlite._PRAGMAS


def sync_never() -> None:
    """Turn off synchronous writes in this process; only a power failure could lose data, a killed process does not."""
    sqlite._PRAGMAS = tuple(each.replace("synchronous=FULL", "synchronous=OFF") for each in ORIGINAL_PRAGMAS)  # type: ignore[assignment]
