"""The connector `odata` for any OData 4 service, and connectors for products that use OData 4."""

from gos_connector_odata.business_central import BusinessCentralConnector
from gos_connector_odata.connector import OdataConnector
from gos_connector_odata.dynamics365 import Dynamics365Connector
from gos_connector_odata.sap import SapConnector

__all__ = ["BusinessCentralConnector", "Dynamics365Connector", "OdataConnector", "SapConnector"]
