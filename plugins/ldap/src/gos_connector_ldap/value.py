"""Converts attribute values to JSON: text unchanged, bytes in base64."""

import base64
from collections.abc import Collection
from typing import Any

from gos_connector_ldap.session import Entry

# Attributes with binary syntax, even if a value happens to be valid UTF-8 (RFC 4519, 4523, inetOrgPerson, Active Directory).
_BINARY = frozenset({
    *("audio", "authorityrevocationlist", "cacertificate", "certificaterevocationlist", "crosscertificatepair", "jpegphoto"),
    *("photo", "userpassword", "tokengroups"),
    *("thumbnailphoto", "thumbnaillogo", "usercertificate", "userpkcs12", "usersmimecertificate", "objectguid", "objectsid"),
    *("sidhistory", "msexchmailboxguid", "ntsecuritydescriptor", "logonhours", "schemaidguid", "attributesecurityguid"),
    *("ms-ds-consistencyguid", "msds-generationid"),
})  # fmt: skip


def to_json(entry: Entry, requested: Collection[str], binary: Collection[str]) -> dict[str, Any]:
    """Return `{dn, attributes}`; requested attributes keep the case of the request, whatever case the directory uses."""
    names = {name.lower(): name for name in requested}
    as_bytes = {name.lower() for name in binary}
    attributes = {
        names.get(name.lower(), name): [_value_to_json(each, in_base64=_is_binary(name, as_bytes)) for each in values]
        for name, values in entry.attributes
    }
    return {"dn": entry.dn, "attributes": attributes}


def _is_binary(name: str, as_bytes: Collection[str]) -> bool:
    plain, *options = name.lower().split(";")
    return plain in _BINARY or plain in as_bytes or "binary" in options


def _value_to_json(value: bytes, *, in_base64: bool) -> Any:
    if not in_base64:
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass  # The value has a binary syntax of its own.
    return {"base64": base64.b64encode(value).decode("ascii")}
