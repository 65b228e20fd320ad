"""The Governed Operations Service: one appliance that runs a tenant's solutions."""

__version__ = "0.1.0"
