"""Cheap password hashes for tests: a real one takes a tenth of a second, and there are hundreds of them."""

from argon2 import PasswordHasher

from appliance.tenants import people

ORIGINAL_HASHER = people._hasher


def hash_cheaply() -> None:
    """Use cheap password hashes in this process."""
    people._hasher = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
