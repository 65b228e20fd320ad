"""Which network addresses the appliance may reach: the public internet, and what the operator's list adds."""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# `is_global` of the standard library follows the IANA registry; these networks count as global but must not be reached.
_NEVER = [
    ipaddress.ip_network(text)
    for text in (
        "192.0.0.0/24",  # protocol assignments; 192.0.0.192 is a cloud's metadata service
        "192.88.99.0/24",  # 6to4 relays
        "168.63.129.16/32",  # a cloud's host agent, reachable from inside its machines only
        "100.64.0.0/10",  # carrier-grade NAT; 100.100.100.200 is a cloud's metadata service
        "198.18.0.0/15",  # benchmarks
        "240.0.0.0/4",  # reserved, and broadcast
        "64:ff9b:1::/48",  # NAT64 for local use: the address does not reveal its IPv4 destination
        "2001::/23",  # Teredo and other protocol assignments
        "3fff::/20",  # documentation
    )
]
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_HOST_NAME = re.compile(r"(?=.{1,253}\Z)([a-z0-9_]([a-z0-9_-]*[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?\.?", re.IGNORECASE)


def parse_address(text: str) -> Address | None:
    """Parse an address from a resolver or a URL, ignoring its zone; None when the text is a name."""
    try:
        return ipaddress.ip_address(text.strip("[]").split("%")[0])
    except ValueError:
        return None


def is_host_name(text: str) -> bool:
    """Return whether the text is a syntactically valid host name."""
    return _HOST_NAME.fullmatch(text) is not None


def innermost(address: Address) -> Address:
    """Return the IPv4 address embedded in an IPv6 address (mapped, 6to4, NAT64), otherwise the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def is_public(address: Address) -> bool:
    """Return whether the address is on the public internet; an IPv4 address embedded in IPv6 is judged as IPv4."""
    if isinstance(address, ipaddress.IPv6Address) and "%" in str(address):
        return False
    real = innermost(address)
    if isinstance(real, ipaddress.IPv6Address) and real not in _GLOBAL_UNICAST:
        return False
    if real.is_multicast or not real.is_global:
        return False
    return not any(network.version == real.version and real in network for network in _NEVER)


@dataclass(frozen=True)
class AllowRule:
    """One entry of the operator's list: a host name or a network, for one port or all ports."""

    host: str | None
    network: Network | None
    port: int | None

    def matches(self, host: str, address: Address, port: int) -> bool:
        """Return whether the rule allows `address`, to which `host` resolved, on `port`."""
        if self.port is not None and self.port != port:
            return False
        if self.host is not None:
            return host.lower().rstrip(".") == self.host
        real = innermost(address)
        return self.network is not None and real.version == self.network.version and real in self.network


def parse_allow(entries: Iterable[str]) -> tuple[AllowRule, ...]:
    """Parse entries such as `10.0.0.0/8`, `127.0.0.1:8080`, `[fd00::1]:443` or `erp.internal:443`.

    ValueError names the entry that cannot be read.
    """
    return tuple(_parse_entry(entry.strip()) for entry in entries)


def _parse_entry(entry: str) -> AllowRule:
    if network := _network(entry):
        return AllowRule(None, network, None)
    host, separator, port_text = entry.rpartition(":")
    port: int | None = None
    if separator and port_text.isascii() and port_text.isdigit():
        port = int(port_text)
        if not 0 < port < 65536:
            raise ValueError(f"{entry!r}: a port lies between 1 and 65535")
    else:
        host = entry
    if network := _network(host):
        return AllowRule(None, network, port)
    if not is_host_name(host) or host.rstrip(".").rpartition(".")[2].isdigit():
        raise ValueError(f"{entry!r} is not a host, an address or a network; write erp.internal:443 or 10.0.0.0/8")
    return AllowRule(host.lower().rstrip("."), None, port)


def _network(text: str) -> Network | None:
    bracketed = text.startswith("[") and text.endswith("]")
    try:
        return ipaddress.ip_network(text[1:-1] if bracketed else text)
    except ValueError:
        return None
