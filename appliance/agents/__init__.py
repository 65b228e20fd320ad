"""Agents: models that act through governed tools, and the skills they follow."""
