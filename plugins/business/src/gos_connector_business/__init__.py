"""Connectors for business applications: one package for each, and the modules they share."""
