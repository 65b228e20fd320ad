"""Validation of custom host names: one canonical form (IDNA 2008, lower case), and no reserved names."""

import ipaddress
from functools import cache

import idna
from publicsuffixlist import PublicSuffixList

from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence

CHALLENGE_LABEL = "_gos-challenge"
CHALLENGE_PATH = "/.well-known/gos-challenge/"
LONGEST = 253 - len(CHALLENGE_LABEL) - 1
_SPECIAL = ("localhost", "invalid", "onion", "arpa", "alt")  # RFC 6761 and similar: never a public DNS name


@cache
def _suffixes() -> PublicSuffixList:
    return PublicSuffixList()


def normalise_host(text: str, *, pointer: str = "/host") -> str:
    """The host name in canonical form: lower case, without a final dot, international labels as `xn--…`. ValidationFailed."""
    name = text.strip()
    if not name or len(name) > 1000:
        raise ValidationFailed("enter a host name, such as shop.example.com", pointer=pointer)
    if any(character in name for character in "/:@?#[]\\ "):
        raise ValidationFailed(
            Sentence("enter only the host name, without scheme, port or path, instead of %(given)s", given=repr(name[:80])),
            pointer=pointer,
        )
    if "*" in name:
        raise ValidationFailed("wildcards are not supported; add each host name separately", pointer=pointer)
    try:
        host = idna.encode(name, uts46=True, std3_rules=True).decode("ascii").lower().removesuffix(".")
    except (idna.IDNAError, UnicodeError) as error:
        raise ValidationFailed(
            Sentence("%(given)s is not a host name: %(error)s", given=repr(name[:80]), error=error), pointer=pointer
        ) from error
    if len(host) > LONGEST:
        raise ValidationFailed(Sentence("a host name has at most %(longest)s characters", longest=LONGEST), pointer=pointer)
    return host


def check_not_reserved(host: str, own: tuple[str, ...], *, pointer: str = "/host") -> None:
    """ValidationFailed for names that no tenant may claim: IP addresses, names without a dot, public suffixes, and the
    appliance's `own`."""
    last = host.rpartition(".")[2]
    if _is_address(host) or last.isdigit() or last.startswith("0x"):
        raise ValidationFailed("an IP address cannot be used; enter a host name", pointer=pointer)
    if "." not in host or last in _SPECIAL:
        raise ValidationFailed(
            Sentence("%(host)s is not a public DNS name; use one such as shop.example.com", host=host), pointer=pointer
        )
    for domain in own:
        if host == domain or host.endswith(f".{domain}"):
            raise ValidationFailed(
                Sentence("%(host)s belongs to the appliance, like every name under %(domain)s", host=host, domain=domain),
                pointer=pointer,
            )
    if _suffixes().publicsuffix(host) == host:
        raise ValidationFailed(
            Sentence("%(host)s is a public suffix; use a name below it", host=host), pointer=pointer
        )


def is_apex(host: str) -> bool:
    """Whether the name is a registered domain, for which DNS allows no CNAME."""
    return bool(_suffixes().privatesuffix(host) == host)


def partner_of(host: str, redirect_from: str | None) -> str | None:
    """The other name of a pair: the host with `www.` added or removed; None without `redirect_from`, ValidationFailed when the
    two do not fit."""
    if redirect_from is None:
        return None
    if redirect_from == "www":
        if host.startswith("www."):
            raise ValidationFailed("the host already begins with www.; set redirect_from to apex", pointer="/redirect_from")
        return f"www.{host}"
    if not host.startswith("www."):
        raise ValidationFailed("redirect_from can be apex only for a host that begins with www.", pointer="/redirect_from")
    return host.removeprefix("www.")


def names_of(host: str, redirect_from: str | None) -> list[str]:
    """The host of a domain, and the name that redirects to it."""
    partner = partner_of(host, redirect_from)
    return [host] if partner is None else [host, partner]


def to_display(host: str) -> str:
    """The name in its readable international form, or unchanged when it cannot be decoded."""
    try:
        return idna.decode(host)
    except idna.IDNAError:
        return host


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_public_suffix(host: str) -> bool:
    """Whether browsers treat the names below it as separate sites."""
    return bool(_suffixes().publicsuffix(host, accept_unknown=False) == host)
