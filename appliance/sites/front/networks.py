"""Networks of addresses, such as those of the proxies that are believed."""

import ipaddress
from collections.abc import Iterable


class Networks:
    """Some networks (CIDR)."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = [ipaddress.ip_network(network) for network in networks]

    def __contains__(self, address: str) -> bool:
        """Whether the address lies in one of them; what is no address does not."""
        if not self._networks:
            return False
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._networks)
