"""The connector `odoo`: Odoo's models as an integration."""

from gos_connector_business.odoo.connector import OdooConnector

__all__ = ["OdooConnector"]
