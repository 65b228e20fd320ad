"""What is kept of a request's address, browser and origin: enough to count by, too little to find a person by."""

import hashlib
import ipaddress
import re
from functools import lru_cache
from typing import Literal
from urllib.parse import urlsplit

Addresses = Literal["truncated", "full", "none"]
OTHER = "other"
FOLLOWED = "/_gos/executions/"  # every execution that is followed has an address of its own below
FOLLOWED_SHOWN = f"{FOLLOWED}<ticket>"
# In this order: each names itself after those that come later.
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


def shown_path(path: str) -> str:
    """The path as it is kept: without the ticket, which opens what it names and makes a page of every execution."""
    return FOLLOWED_SHOWN if path.startswith(FOLLOWED) else path


@lru_cache(maxsize=4096)
def shown_address(address: str, addresses: Addresses) -> str:
    """The address as it is kept: whole, its network (/24, /48), or nothing; nothing where it is no address."""
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
    """The kind of browser or program."""
    return next((name for name, pattern in _FAMILIES if pattern.search(agent)), OTHER)


@lru_cache(maxsize=4096)
def referrer_host(referrer: str, own: str) -> str:
    """The host a visitor came from; empty within the app and where there is none."""
    try:
        host = urlsplit(referrer).hostname or ""
    except ValueError:
        return ""
    return "" if host == own or len(host) > 253 or not host.isprintable() else host


def visitor_number(salt: str, tenant: str, app: str, came: tuple[str, str]) -> str:
    """The number of a visitor for one day, one app: from the address and the browser they came with."""
    told = "\0".join((salt, tenant, app, *came)).encode("utf8", "replace")
    return hashlib.blake2b(told, digest_size=8).hexdigest()
