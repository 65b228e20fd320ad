"""Connectors: the contract a plugin fulfils, the registry that finds plugins, and the only way out to the network."""
