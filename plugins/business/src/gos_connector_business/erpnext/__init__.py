"""The connector `erpnext`: documents of ERPNext, and of any other Frappe site, as an integration."""

from gos_connector_business.erpnext.connector import ErpnextConnector

__all__ = ["ErpnextConnector"]
