"""API keys: issue, bounds, descent and adoption."""
