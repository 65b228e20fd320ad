"""The connector `graphql`: any GraphQL service as an integration."""

from gos_connector_graphql.connector import GraphqlConnector

__all__ = ["GraphqlConnector"]
