"""People as a directory describes them, and how their entries say that an account is disabled."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.core import clock
from appliance.core.config.directories import Directory

_BINARY = "hex:"
_AD_DISABLED = 0x2  # ACCOUNTDISABLE of userAccountControl
_FILETIME_EPOCH_MS = 11_644_473_600_000  # from 1601 to 1970
_NEVER = frozenset({0, 0x7FFF_FFFF_FFFF_FFFF})
_LOCKED_FOR_EVER = "000001010000Z"  # a lock that passes is the directory's to check, at the next sign-in
STATE = ("userAccountControl", "accountExpires", "nsAccountLock", "pwdAccountLockedTime")
MEMBER_OF = "memberOf"


@dataclass(frozen=True)
class DirectoryPerson:
    """Somebody's entry.  `subject` never changes, `login` is that of a new account, `name` the login inside the directory."""

    dn: str
    subject: str
    login: str
    name: str
    is_disabled: bool
    member_of: tuple[str, ...]
    has_more_groups: bool = False


def requested_attributes(directory: Directory) -> list[str]:
    """The attributes to read."""
    names = [*directory.login_attributes, directory.login_attribute, directory.id_attribute, *STATE]
    return list(dict.fromkeys([*names, MEMBER_OF] if directory.groups == "member_of" else names))


def read_person(directory: Directory, entry: Mapping[str, Any]) -> DirectoryPerson | None:
    """The person of an entry; None if it has no value that never changes."""
    attributes: Mapping[str, list[Any]] = entry["attributes"]
    subject = read_subject(attributes.get(directory.id_attribute, []))
    if not subject:
        return None
    ranged = any(name.lower().startswith("memberof;range=") for name in attributes)
    return DirectoryPerson(
        dn=entry["dn"], subject=subject, login=_first_text(attributes, directory.login_attribute),
        name=_first_text(attributes, directory.login_attributes[0]), is_disabled=is_disabled(attributes),
        member_of=tuple(each for each in attributes.get(MEMBER_OF, []) if isinstance(each, str)), has_more_groups=ranged,
    )  # fmt: skip


def read_subject(values: list[Any]) -> str:
    """The single value of the attribute that never changes, as text; binary ones in hexadecimal."""
    if len(values) != 1:
        return ""
    value = values[0]
    return value if isinstance(value, str) else f"{_BINARY}{base64.b64decode(value['base64']).hex()}"


def subject_value(subject: str) -> str | bytes:
    """The value in the directory that `read_subject` has made this of."""
    return bytes.fromhex(subject.removeprefix(_BINARY)) if subject.startswith(_BINARY) else subject


def is_disabled(attributes: Mapping[str, list[Any]]) -> bool:
    """Whether the entry says that its account is disabled or has expired: Active Directory, 389 and FreeIPA, OpenLDAP."""
    if _number(attributes, "userAccountControl") & _AD_DISABLED:
        return True
    expires = _number(attributes, "accountExpires")
    if expires not in _NEVER and expires // 10_000 - _FILETIME_EPOCH_MS <= clock.now_ms():
        return True
    is_locked = _first_text(attributes, "nsAccountLock").upper() == "TRUE"
    return is_locked or _first_text(attributes, "pwdAccountLockedTime") == _LOCKED_FOR_EVER


def _number(attributes: Mapping[str, list[Any]], name: str) -> int:
    text = _first_text(attributes, name)
    return int(text) if text.lstrip("-").isdigit() else 0


def _first_text(attributes: Mapping[str, list[Any]], name: str) -> str:
    return next((each for each in attributes.get(name, []) if isinstance(each, str)), "")
