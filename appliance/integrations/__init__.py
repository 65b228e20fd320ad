"""A tenant's configured connectors: their settings and sealed secrets, and the record of every call."""
