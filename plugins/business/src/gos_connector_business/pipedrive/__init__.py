"""The connector `pipedrive`: Pipedrive's deals and what belongs to them as an integration."""

from gos_connector_business.pipedrive.connector import PipedriveConnector

__all__ = ["PipedriveConnector"]
