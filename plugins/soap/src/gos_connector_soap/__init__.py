"""The connector `soap`: calls any SOAP service described by a WSDL 1.1 document."""

from gos_connector_soap.connector import SoapConnector

__all__ = ["SoapConnector"]
