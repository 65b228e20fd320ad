"""Connector for any API that an OpenAPI 3 document describes: its operations are the actions."""

from gos_connector_openapi.connector import OpenapiConnector

__all__ = ["OpenapiConnector"]
