"""The connector `pipedrive`: Pipedrive's deals, persons, organizations, activities and products as an integration."""

from gos_connector_business.pipedrive.connector import PipedriveConnector

__all__ = ["PipedriveConnector"]
