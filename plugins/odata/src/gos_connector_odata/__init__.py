"""The connector `odata`: any OData 4 service as an integration; and those for products that speak it."""

from gos_connector_odata.business_central import BusinessCentralConnector
from gos_connector_odata.connector import OdataConnector
from gos_connector_odata.dynamics365 import Dynamics365Connector
from gos_connector_odata.sap import SapConnector

__all__ = ["BusinessCentralConnector", "Dynamics365Connector", "OdataConnector", "SapConnector"]
