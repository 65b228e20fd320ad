"""No waiting for the disk in the databases of tests: thousands of them are written, and none has to outlive the machine."""

from appliance.core.database import sqlite

PROPER = sqlite._PRAGMAS


def sync_never() -> None:
    """From now on in this process: a killed process loses nothing by it, only a machine without power would."""
    sqlite._PRAGMAS = tuple(each.replace("synchronous=FULL", "synchronous=OFF") for each in PROPER)  # type: ignore[assignment]
