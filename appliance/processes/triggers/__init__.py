"""Triggers: what starts executions of a published process without anybody asking for it."""
