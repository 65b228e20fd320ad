"""The connector `odata`: any OData 4 service as an integration."""

from gos_connector_odata.connector import OdataConnector

__all__ = ["OdataConnector"]
