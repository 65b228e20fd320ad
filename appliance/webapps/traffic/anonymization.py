"""Reduces the address, browser and referrer of a request to what statistics need, so that no person can be identified."""

import hashlib
import ipaddress
import re
from functools import lru_cache
from typing import Literal
from urllib.parse import urlsplit

Addresses = Literal["truncated", "full", "none"]
OTHER = "other"
FOLLOWED = "/_gos/executions/"  # each followed execution has its own path below this
FOLLOWED_SHOWN = f"{FOLLOWED}<ticket>"
# Order matters: browsers also name those further down the list.
_FAMILIES = (
    ("bot", re.compile(r"bot\b|crawl|spider|slurp|preview|monitor", re.IGNORECASE)),
    ("Edge", re.compile(r"\bEdg(?:e|A|iOS)?/")),
    ("Opera", re.compile(r"\bOPR/|\bOpera\b")),
    ("Samsung Internet", re.compile(r"\bSamsungBrowser/")),
    ("Firefox", re.compile(r"\bFirefox/|\bFxiOS/")),
    ("Chrome", re.compile(r"\b(?:Headless)?Chrome/|\bCriOS/|\bChromium/")),
    ("Safari", re.compile(r"\bSafari/")),
    ("program", re.compile(r"^(?:curl|Wget|python|Go-http|node|okhttp|Java|axios|PostmanRuntime)", re.IGNORECASE)),
)


def stored_path(path: str) -> str:
    """The path to store: without the ticket of an execution, which grants access to it and would add one path per execution."""
    return FOLLOWED_SHOWN if path.startswith(FOLLOWED) else path


@lru_cache(maxsize=4096)
def stored_address(address: str, addresses: Addresses) -> str:
    """The address to store: in full, its network (/24 or /48), or empty; also empty when it is not an IP address."""
    if addresses == "none":
        return ""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return ""
    mapped = getattr(parsed, "ipv4_mapped", None)
    parsed = mapped or parsed
    if addresses == "full":
        return str(parsed)
    return str(ipaddress.ip_network(f"{parsed}/{24 if parsed.version == 4 else 48}", strict=False).network_address)


@lru_cache(maxsize=4096)
def agent_family(agent: str) -> str:
    """The family of the browser or program."""
    return next((name for name, pattern in _FAMILIES if pattern.search(agent)), OTHER)


@lru_cache(maxsize=4096)
def referrer_host(referrer: str, own: str) -> str:
    """The host a visitor came from; empty within the app, or when unknown."""
    try:
        host = urlsplit(referrer).hostname or ""
    except ValueError:
        return ""
    return "" if host == own or len(host) > 253 or not host.isprintable() else host


def visitor_number(salt: str, tenant: str, app: str, client: tuple[str, str]) -> str:
    """A pseudonymous number of a visitor for one day and one app, from the address and the browser."""
    message = "\0".join((salt, tenant, app, *client)).encode("utf8", "replace")
    return hashlib.blake2b(message, digest_size=8).hexdigest()
