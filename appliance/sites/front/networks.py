"""Sets of IP networks, such as those of the trusted proxies."""

import ipaddress
from collections.abc import Iterable


class Networks:
    """A set of networks (CIDR)."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = [ipaddress.ip_network(network) for network in networks]

    def __contains__(self, address: str) -> bool:
        """Whether the address is in one of the networks; False for text that is not an address."""
        if not self._networks:
            return False
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._networks)
