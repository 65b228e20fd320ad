"""The host table of docs/contract.md § 2: matches a Host header to what the host serves."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from appliance.core import ids
from appliance.core.config import Domains

from . import service

_HOST = re.compile(r"[a-z0-9.-]{1,253}|\[[0-9a-f:.]{2,45}\]")

CDN = "cdn"
_SITE = re.compile(r"(?:v([1-9][0-9]{0,9})-)?(?!v\d+-)([a-z](?:-?[a-z0-9])*)--([a-z](?:-?[a-z0-9])*)")


@dataclass(frozen=True)
class HostMatch:
    """What a host serves; `tenant` is set for a tenant's own host, `app` also for a WebApp's (which may not exist), and `version`
    for a preview's.

    `custom` marks a tenant's own domain; `canonical` names the host it redirects to, empty if it serves content itself.
    `cdn` is the host of a tenant's public documents and shares.
    """

    kind: Literal["base", "tenant", "webapp", "preview", "cdn", "unknown"]
    tenant: str | None = None
    app: str | None = None
    version: int | None = None
    custom: bool = False
    canonical: str = ""


FindCustomHost = Callable[[str], HostMatch | None]


@dataclass
class CustomHosts:
    """The hosts that are not the appliance's own; None while there are none."""

    find: FindCustomHost | None = None


custom_hosts = CustomHosts()


def set_custom_hosts(find: FindCustomHost) -> None:
    """Set what matches a host name that is not the appliance's own, for this process."""
    custom_hosts.find = find


def split_host(header: str) -> str:
    """The host name of a Host header in lower case, without port and final dot; empty if it is not a host."""
    name = header.strip().lower()
    if not name.endswith("]"):
        name, _, port = name.rpartition(":") if ":" in name else (name, "", "")
        if port and not port.isdigit():
            return ""
    name = name.removesuffix(".")
    return name if _HOST.fullmatch(name) else ""


def match_host(header: str, domains: Domains) -> HostMatch:
    """Match a Host header; `unknown` is answered with 421, except for health checks.

    The address of a loopback listener counts as the base host, so that `curl http://127.0.0.1:8080` works where
    `localhost` is the base domain.
    """
    name = split_host(header)
    base = domains.base
    if name == base or (base == "localhost" and name in ("127.0.0.1", "[::1]")):
        return HostMatch("base")
    if name.endswith(f".{base}") and not name.endswith(f".{domains.content}") and name != domains.content:
        tenant = name.removesuffix(f".{base}")
        if "." not in tenant and service.tenant_exists(tenant):
            return HostMatch("tenant", tenant)
    site = _SITE.fullmatch(name.removesuffix(f".{domains.content}")) if name.endswith(f".{domains.content}") else None
    if site is not None and (site[1], site[2]) == (None, CDN) and service.tenant_exists(site[3]):
        return HostMatch("cdn", site[3])
    if site is not None and site[2] not in ids.RESERVED and service.tenant_exists(site[3]):
        return HostMatch("preview", site[3], site[2], int(site[1])) if site[1] else HostMatch("webapp", site[3], site[2])
    custom = custom_hosts.find(name) if name and custom_hosts.find else None
    return custom or HostMatch("unknown")
