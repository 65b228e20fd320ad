"""The connector `http`: any HTTP API as an integration."""

from gos_connector_http.connector import HttpConnector

__all__ = ["HttpConnector"]
