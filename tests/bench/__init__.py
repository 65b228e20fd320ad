"""Measurements, not tests: each module is run by hand and prints figures with the floors measured in the same run."""
