"""The connector `ldap`: looks things up in a directory, such as OpenLDAP or Active Directory."""

from gos_connector_ldap.connector import LdapConnector

__all__ = ["LdapConnector"]
