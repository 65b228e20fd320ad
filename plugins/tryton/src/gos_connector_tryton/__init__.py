"""The connector `tryton`: the ERP Tryton as an integration."""

from gos_connector_tryton.connector import TrytonConnector

__all__ = ["TrytonConnector"]
