"""Leases: rows that one worker at a time works on, under a fence (`table`), the threads that work on them (`claims`), claims on
rows of tenants (`tenant_claims`), and the tenants of which nothing is claimed (`open_tenants`)."""

from .table import Changes, Key, Lease, LeaseLost, LeaseTable, OrphanFinder

__all__ = ["Changes", "Key", "Lease", "LeaseLost", "LeaseTable", "OrphanFinder"]
