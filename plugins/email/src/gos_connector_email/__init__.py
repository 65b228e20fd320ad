"""Connector for mail: SMTP and IMAP."""

from gos_connector_email.connector import EmailConnector

__all__ = ["EmailConnector"]
