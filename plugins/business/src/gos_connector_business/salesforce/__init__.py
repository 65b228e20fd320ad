"""The connector `salesforce`: Salesforce's objects as an integration."""

from gos_connector_business.salesforce.connector import SalesforceConnector

__all__ = ["SalesforceConnector"]
