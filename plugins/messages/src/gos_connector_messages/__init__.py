"""The connectors `slack`, `teams` and `webhook`: send messages and events to people and systems."""

from gos_connector_messages.slack import SlackConnector
from gos_connector_messages.teams import TeamsConnector
from gos_connector_messages.webhook import WebhookConnector

__all__ = ["SlackConnector", "TeamsConnector", "WebhookConnector"]
