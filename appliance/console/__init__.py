"""The web console: HTML over the same verbs as the API."""
