"""Connectors for files on other machines."""

from gos_connector_files.sftp import SftpConnector

__all__ = ["SftpConnector"]
