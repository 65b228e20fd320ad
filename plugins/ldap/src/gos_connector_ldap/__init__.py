"""The connector `ldap`: searches a directory such as OpenLDAP or Active Directory."""

from gos_connector_ldap.connector import LdapConnector

__all__ = ["LdapConnector"]
