"""The connector `hubspot`: HubSpot's CRM objects as an integration."""

from gos_connector_business.hubspot.connector import HubspotConnector

__all__ = ["HubspotConnector"]
