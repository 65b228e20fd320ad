"""Connectors for files on other machines."""

from gos_connector_files.sftp import SftpConnector
from gos_connector_files.webdav import WebdavConnector

__all__ = ["SftpConnector", "WebdavConnector"]
