"""Addresses of clients as they are counted against limits."""

import ipaddress
from functools import lru_cache


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """The network that counts as one client: an IPv4 address by itself, of IPv6 the /64, all of which one client may use."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


@lru_cache(maxsize=4096)
def wide_network_of(address: str) -> str:
    """The network that one operator has, roughly: of IPv4 the /16, of IPv6 the /32.  Many /64 are cheap, many of these are not."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is None:
            return str(ipaddress.ip_network((parsed, 32), strict=False))
        parsed = parsed.ipv4_mapped
    return str(ipaddress.ip_network((parsed, 16), strict=False))
