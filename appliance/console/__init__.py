"""The web console: HTML over the same verbs as the API."""

from .blueprint import register

__all__ = ["register"]
