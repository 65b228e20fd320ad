"""Connectors for business applications, a package each, over what they share."""
