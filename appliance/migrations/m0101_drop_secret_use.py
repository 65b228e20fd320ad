"""Drops the list of uses of secrets from before secrets had destinations, which development versions worked off."""

STATEMENTS = ["DROP TABLE secret_use"]
