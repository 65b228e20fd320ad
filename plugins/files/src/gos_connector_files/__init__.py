"""Connectors for files on this machine and on remote servers."""

from gos_connector_files.folder import FolderConnector
from gos_connector_files.ftp import FtpConnector
from gos_connector_files.s3 import S3Connector
from gos_connector_files.sftp import SftpConnector
from gos_connector_files.webdav import WebdavConnector

__all__ = ["FolderConnector", "FtpConnector", "S3Connector", "SftpConnector", "WebdavConnector"]
