"""API keys: issue, bounds, descent and rates."""
