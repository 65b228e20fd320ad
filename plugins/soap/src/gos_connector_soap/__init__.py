"""The connector `soap`: any SOAP service that a WSDL 1.1 describes."""

from gos_connector_soap.connector import SoapConnector

__all__ = ["SoapConnector"]
