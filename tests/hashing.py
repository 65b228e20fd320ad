"""Cheap hashes for the passwords of tests: a proper one takes a tenth of a second, and there are hundreds of them."""

from argon2 import PasswordHasher

from appliance.tenants import people

PROPER = people._hasher


def hash_cheaply() -> None:
    """From now on in this process."""
    people._hasher = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
