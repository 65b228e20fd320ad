"""What a custom host name may be: one way of writing it (IDNA 2008, lower case), and none that is somebody's by nature."""

import ipaddress
from functools import cache

import idna
from publicsuffixlist import PublicSuffixList

from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence

CHALLENGE_LABEL = "_gos-challenge"
CHALLENGE_PATH = "/.well-known/gos-challenge/"
LONGEST = 253 - len(CHALLENGE_LABEL) - 1
_SPECIAL = ("localhost", "invalid", "onion", "arpa", "alt")  # RFC 6761 and its like: never a host of the public DNS


@cache
def _suffixes() -> PublicSuffixList:
    return PublicSuffixList()


def normalise_host(text: str, *, pointer: str = "/host") -> str:
    """The host name as DNS knows it: lower case, without the final dot, labels of other scripts as `xn--…`.

    ValidationFailed says what is wrong with the text.
    """
    given = text.strip()
    if not given or len(given) > 1000:
        raise ValidationFailed("name the host, such as shop.example.com", pointer=pointer)
    if any(sign in given for sign in "/:@?#[]\\ "):
        raise ValidationFailed(
            Sentence("give the host name alone, without scheme, port or path, not %(given)s", given=repr(given[:80])),
            pointer=pointer,
        )
    if "*" in given:
        raise ValidationFailed("a wildcard cannot be claimed; claim each host name", pointer=pointer)
    try:
        host = idna.encode(given, uts46=True, std3_rules=True).decode("ascii").lower().removesuffix(".")
    except (idna.IDNAError, UnicodeError) as error:
        raise ValidationFailed(
            Sentence("%(given)s is not a host name: %(error)s", given=repr(given[:80]), error=error), pointer=pointer
        ) from error
    if len(host) > LONGEST:
        raise ValidationFailed(Sentence("a host name has at most %(longest)s characters", longest=LONGEST), pointer=pointer)
    return host


def refuse_reserved(host: str, own: tuple[str, ...], *, pointer: str = "/host") -> None:
    """ValidationFailed for what no tenant may claim: addresses, names without a dot, public suffixes, and the appliance's `own`."""
    last = host.rpartition(".")[2]
    if _is_address(host) or last.isdigit() or last.startswith("0x"):
        raise ValidationFailed("an address cannot be claimed; claim a host name", pointer=pointer)
    if "." not in host or last in _SPECIAL:
        raise ValidationFailed(
            Sentence("%(host)s is no name of the public DNS; claim one such as shop.example.com", host=host), pointer=pointer
        )
    for domain in own:
        if host == domain or host.endswith(f".{domain}"):
            raise ValidationFailed(
                Sentence("%(host)s is the appliance's own, like every name under %(domain)s", host=host, domain=domain),
                pointer=pointer,
            )
    if _suffixes().publicsuffix(host) == host:
        raise ValidationFailed(
            Sentence("%(host)s is a public suffix, which nobody has alone; claim a name below it", host=host), pointer=pointer
        )


def is_apex(host: str) -> bool:
    """Whether the name is one that is registered, so that DNS allows it no CNAME."""
    return bool(_suffixes().privatesuffix(host) == host)


def partner_of(host: str, redirect_from: str | None) -> str | None:
    """The other name of a pair: `www.` before the host, or the host without it; ValidationFailed when there is none."""
    if redirect_from is None:
        return None
    if redirect_from == "www":
        if host.startswith("www."):
            raise ValidationFailed("the host begins with www. itself; make redirect_from apex", pointer="/redirect_from")
        return f"www.{host}"
    if not host.startswith("www."):
        raise ValidationFailed("redirect_from: apex is for a host that begins with www.", pointer="/redirect_from")
    return host.removeprefix("www.")


def names_of(host: str, redirect_from: str | None) -> list[str]:
    """The host of a domain, and the name that redirects to it."""
    partner = partner_of(host, redirect_from)
    return [host] if partner is None else [host, partner]


def to_display(host: str) -> str:
    """The name as people write it; as DNS knows it where that cannot be told."""
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
    """Whether browsers take the names under it for strangers to each other."""
    return bool(_suffixes().publicsuffix(host, accept_unknown=False) == host)
