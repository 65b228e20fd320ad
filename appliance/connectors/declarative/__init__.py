"""Declarative connectors: HTTP connectors defined by one YAML file each, without Python code."""

from appliance.connectors.declarative.connector import DeclarativeConnector, make_connector
from appliance.connectors.declarative.document import DocumentInvalid, read_document
from appliance.connectors.declarative.form import connector_schema
from appliance.connectors.declarative.plan import ConnectorPlan
from appliance.connectors.declarative.requests import base_address

__all__ = [
    "ConnectorPlan",
    "DeclarativeConnector",
    "DocumentInvalid",
    "base_address",
    "connector_schema",
    "make_connector",
    "read_document",
]
