"""Proxies that sign people in to the console and send their login in a header: their settings, and the checks of them."""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence

from .roles import ID, LINKS, UNKNOWN, GroupRole
from .sections import required, setting

_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{1,60}")
# Headers that clients and proxies send for other purposes, and that anybody can set.
_COMMON_NAMES = frozenset({
    "authorization", "connection", "content-length", "content-type", "cookie", "forwarded", "host", "origin", "referer", "te",
    "transfer-encoding", "upgrade", "user-agent", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto",
    "x-request-id", "accept", "accept-encoding", "accept-language", "date", "expect", "range", "if-match", "if-none-match",
})  # fmt: skip
WIDE_PREFIX = {4: 8, 6: 32}  # a wider network of proxies is refused


@dataclass(frozen=True)
class TrustedHeader:
    """A proxy that signs people in itself and sends their login in a header."""

    id: str = required("Short name such as proxy. Changing it makes its people and memberships those of another proxy.")
    header: str = required("The header with the person's login, such as Remote-User. Nobody else's is ever read.")
    proxies: tuple[str, ...] = required(
        "Networks (CIDR) of the proxies, as narrow as possible. Only a request whose connection comes there may have the header."
    )
    name: str = setting("", "Name in messages; empty: the id.")
    login_header: str = setting("", "Another header with the login of a new account, such as Remote-Email; empty: header.")
    groups_header: str = setting("", "The header with the person's groups, such as Remote-Groups.")
    groups_separator: str = setting(",", "What separates the groups in it.")
    roles: tuple[GroupRole, ...] = setting([], "The roles that groups give in tenants, applied at each sign-in.")
    link_by: Literal["none", "login"] = setting("none", LINKS)
    allow_unknown: bool = setting(False, UNKNOWN)
    logout_url: str = setting("", "Address at the proxy that ends the sign-in there, offered after signing out here.")

    @property
    def issuer(self) -> str:
        """What identities of this proxy are stored under."""
        return f"header:{self.id}"

    @property
    def scim(self) -> bool:
        """Proxies send who is there; they do not add people themselves."""
        return False

    @property
    def label(self) -> str:
        """The name to show."""
        return self.name or self.id

    @property
    def headers(self) -> tuple[str, ...]:
        """Every header that the proxy may send, in lower case."""
        return tuple(dict.fromkeys(each.lower() for each in (self.header, self.login_header, self.groups_header) if each))

    def __str__(self) -> str:
        return f"{self.id}: {self.header} from {' '.join(self.proxies)}"


def check_trusted_headers(headers: Sequence[TrustedHeader]) -> None:
    """ConfigInvalid names the proxy, the field and the problem."""
    for number, each in enumerate(headers):
        if problem := _problem_of_header(each) or _problem_of_proxies(each):
            raise ConfigInvalid(Sentence("sign_in.trusted_headers[%(number)s].%(problem)s", number=number, problem=problem))


def _problem_of_header(trusted: TrustedHeader) -> str:
    if not ID.fullmatch(trusted.id):
        return "id must be at most 40 lower-case letters, digits and hyphens, and begin with a letter"
    for field in ("header", "login_header", "groups_header"):
        value = getattr(trusted, field)
        if (value or field == "header") and (not _HEADER.fullmatch(value) or value.lower() in _COMMON_NAMES):
            return f"{field} is {value!r}; it must be a header of the proxy's own, such as Remote-User"
    if bool(trusted.roles) != bool(trusted.groups_header):
        return "groups_header and roles must be set together"
    if any(not (each.group and each.tenant) for each in trusted.roles):
        return "roles: group and tenant must not be empty"
    if not trusted.groups_separator:
        return "groups_separator must not be empty"
    if trusted.logout_url and urlsplit(trusted.logout_url).scheme not in ("https", "http"):
        return "logout_url must be an address that begins with https://"
    return ""


def _problem_of_proxies(trusted: TrustedHeader) -> str:
    if not trusted.proxies:
        return "proxies must not be empty: it names the networks whose requests may have the header"
    for text in trusted.proxies:
        try:
            network = ipaddress.ip_network(text)
        except ValueError:
            return f"proxies contains {text!r}, which is not a network such as 10.0.0.5/32"
        if network.prefixlen < WIDE_PREFIX[network.version]:
            return f"proxies contains {text}, from which anybody could sign in as anybody; name the addresses of the proxies"
    return ""
