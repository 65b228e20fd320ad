"""Connectors for files, on this machine and on others."""

from gos_connector_files.folder import FolderConnector
from gos_connector_files.sftp import SftpConnector
from gos_connector_files.webdav import WebdavConnector

__all__ = ["FolderConnector", "SftpConnector", "WebdavConnector"]
