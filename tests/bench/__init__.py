"""Measurements, not tests: each module can be run by itself, and prints figures with the floors measured in the same run."""
