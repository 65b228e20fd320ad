"""Directories (LDAP) whose people sign in to the console: their settings, and the checks of them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence

from .roles import ID, LINKS, UNKNOWN, GroupRole
from .sections import required, setting

_ATTRIBUTE = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,100}")
MOST_SECONDS = 60
PORTS = {"ldap": 389, "ldaps": 636}


@dataclass(frozen=True)
class Directory:
    """A directory (LDAP) whose people sign in to the console with their login and password there."""

    id: str = required("Short name such as corp. Changing it makes its people and memberships those of another directory.")
    urls: tuple[str, ...] = required(
        "Servers, each as ldaps://HOST[:PORT], or ldap://HOST[:PORT], which switches to TLS (StartTLS) before anything else. The "
        "next one is used when one does not answer. Clear text is not possible."
    )
    base_dn: str = required("Where people are searched, with everything below it.")
    name: str = setting("", "Name in messages; empty: the id.")
    ca_file: str = setting("", "PEM file with the CA of the servers' certificates; empty: the CAs that the system trusts.")
    bind_dn: str = setting("", "Who searches the directory; empty: it is searched without signing in.")
    bind_password: str = setting("", "The password of bind_dn; prefer bind_password_file.", secret=True)
    bind_password_file: str = setting("", "Absolute path of a file that contains it; an alternative to bind_password.")
    user_filter: str = setting("(objectClass=person)", "LDAP filter of the entries that may sign in.")
    login_attributes: tuple[str, ...] = setting(["uid"], "Attributes that are compared with what somebody enters as login.")
    login_attribute: str = setting("mail", "The attribute that is the login of a new account.")
    id_attribute: str = setting("entryUUID", "The attribute that never changes; objectGUID for Active Directory.")
    groups: Literal["none", "member_of", "search", "nested", "in_chain"] = setting(
        "none",
        "How groups are read. member_of: from memberOf of the person. search: groups whose group_attribute has the person. "
        "nested: also the groups of these groups. in_chain: the same, computed by Active Directory.",
    )
    group_base_dn: str = setting("", "Where groups are searched; empty: base_dn.")
    group_attribute: str = setting("member", "The attribute of groups with the DNs of their members; memberUid has logins.")
    roles: tuple[GroupRole, ...] = setting([], "The roles that groups give in tenants, by the DN of the group, at each sign-in.")
    link_by: Literal["none", "login"] = setting("none", LINKS)
    allow_unknown: bool = setting(False, UNKNOWN)
    timeout_seconds: int = setting(5, "How long each server has to answer.")

    @property
    def issuer(self) -> str:
        """What identities of this directory are stored under."""
        return f"directory:{self.id}"

    @property
    def scim(self) -> bool:
        """Directories are asked; they do not add people themselves."""
        return False

    @property
    def label(self) -> str:
        """The name to show."""
        return self.name or self.id

    def __str__(self) -> str:
        return f"{self.id}: {' '.join(self.urls)}"


def server_of(url: str) -> tuple[str, int, str]:
    """Host, port and encryption (tls or starttls) of a server's URL; ValueError if it is none."""
    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname or parts.username or parts.query or parts.fragment or parts.path.strip("/"):
        raise ValueError(url)
    return parts.hostname, parts.port or PORTS[parts.scheme], "tls" if parts.scheme == "ldaps" else "starttls"


def check_directories(directories: Sequence[Directory]) -> None:
    """ConfigInvalid names the directory, the field and the problem."""
    for number, directory in enumerate(directories):
        if problem := _problem_of_directory(directory) or _problem_of_password(directory) or _problem_of_groups(directory):
            raise ConfigInvalid(Sentence("sign_in.directories[%(number)s].%(problem)s", number=number, problem=problem))


def _problem_of_directory(directory: Directory) -> str:
    """The first problem of the servers and entries, beginning with its field; or an empty string."""
    if not ID.fullmatch(directory.id):
        return "id must be at most 40 lower-case letters, digits and hyphens, and begin with a letter"
    for url in directory.urls:
        try:
            server_of(url)
        except ValueError:
            return f"urls contains {url!r}, which is not ldaps://HOST[:PORT] or ldap://HOST[:PORT]"
    if not directory.urls:
        return "urls must not be empty"
    if not directory.base_dn.strip():
        return "base_dn must not be empty"
    if not (directory.user_filter.startswith("(") and directory.user_filter.endswith(")")):
        return "user_filter must be an LDAP filter in parentheses, such as (objectClass=person)"
    if not directory.login_attributes:
        return "login_attributes must not be empty"
    names = [*directory.login_attributes, directory.login_attribute, directory.id_attribute, directory.group_attribute]
    if wrong := next((each for each in names if not _ATTRIBUTE.fullmatch(each)), None):
        return f"{wrong!r} is not the name of an attribute"
    if not 1 <= directory.timeout_seconds <= MOST_SECONDS:
        return f"timeout_seconds must be from 1 to {MOST_SECONDS}"
    return ""


def _problem_of_password(directory: Directory) -> str:
    if directory.bind_password and directory.bind_password_file:
        return "bind_password cannot be combined with bind_password_file"
    if bool(directory.bind_dn) != bool(directory.bind_password or directory.bind_password_file):
        return "bind_dn and its password (bind_password_file or bind_password) must be set together"
    for field in ("bind_password_file", "ca_file"):
        if (path := getattr(directory, field)) and not Path(path).is_absolute():
            return f"{field} must be an absolute path"
    return ""


def _problem_of_groups(directory: Directory) -> str:
    if bool(directory.roles) != (directory.groups != "none"):
        return "groups and roles must be set together"
    if any(not (each.group and each.tenant) for each in directory.roles):
        return "roles: group and tenant must not be empty"
    return ""


def read_bind_password(directory: Directory) -> str:
    """The password of bind_dn, from the settings or its file; ConfigInvalid when the file cannot be read or is empty."""
    if not directory.bind_password_file:
        return directory.bind_password
    text = _read(directory, "bind_password_file").strip()
    if not text:
        raise ConfigInvalid(Sentence("%(name)s is empty", name=f"sign_in.directories: bind_password_file of {directory.id}"))
    return text


def read_authority(directory: Directory) -> str | None:
    """The PEM certificates of ca_file, None without one; ConfigInvalid."""
    return _read(directory, "ca_file") if directory.ca_file else None


def _read(directory: Directory, field: str) -> str:
    name, path = f"sign_in.directories: {field} of {directory.id}", getattr(directory, field)
    try:
        return Path(path).read_text("utf8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigInvalid(Sentence(
            "%(name)s: %(file)s cannot be read (%(strerror)s)", name=name, file=path, strerror=reason
        )) from error
