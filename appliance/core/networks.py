"""Maps client addresses to the networks that rate limits count."""

import ipaddress
from functools import lru_cache


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """The network that counts as one client: a single IPv4 address, or the /64 of an IPv6 address."""
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
    """The approximate network of one operator: the /16 of IPv4, the /32 of IPv6.  Unlike /64 networks, many are expensive."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is None:
            return str(ipaddress.ip_network((parsed, 32), strict=False))
        parsed = parsed.ipv4_mapped
    return str(ipaddress.ip_network((parsed, 16), strict=False))
