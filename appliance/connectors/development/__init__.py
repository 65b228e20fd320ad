"""For authors of connectors: a new package, live reload, and what a release may change."""
