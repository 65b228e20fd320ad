"""The web console: HTML over the same verbs as the API."""

from .blueprints import register

__all__ = ["register"]
