"""Cheap keys for the sealed backups of tests: a proper one takes a tenth of a second, and there are hundreds of them."""

from appliance.backups import envelope

PROPER = envelope._COST


def seal_cheaply() -> None:
    """From now on in this process."""
    envelope._COST = {"memory_kib": 64, "rounds": 1, "lanes": 4}
