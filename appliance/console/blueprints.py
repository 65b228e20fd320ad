"""Registers the console's pages."""

from quart import Quart

from appliance.solutions.services import Services


def register(quart: Quart, services: Services) -> None:
    """Add the console to the application."""
