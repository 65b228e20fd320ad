"""An installation behind a proxy: two servers without workers, one worker, one PostgreSQL."""

from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from appliance.connectors.testing import free_port
from tests.cluster.proxies import Proxy, caddy, nginx
from tests.cluster.several import Process, Several, several
from tests.store.cluster import Cluster

DOMAIN = "shop.test"
BASE, CONTENT = "gos.test", "gos-content.test"  # no certificate may be for *.localhost

HOSTS = {"tls": (BASE, f"*.{BASE}", f"*.{CONTENT}"), DOMAIN: (DOMAIN,)}


@dataclass
class Behind:
    """The installation, its two servers, and the proxy in front of them."""

    group: Several
    servers: list[Process]
    proxy: Proxy

    def api(self, *, http2: bool = True) -> httpx.Client:
        """Tenant acme's API through the proxy, over HTTPS."""
        return self.proxy.client(f"acme.{BASE}", headers={"X-API-Key": self.group.key}, http2=http2)


@pytest.fixture(scope="module", params=["nginx", pytest.param("caddy", marks=pytest.mark.chaos)])
def behind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> Iterator[Behind]:
    folder, port = tmp_path_factory.mktemp("installation"), free_port()
    server = {"tls": "off", "public_port": port, "trusted_proxies": ["127.0.0.1/32"], "drain_seconds": 1}
    with several(folder, cluster.emptied(), server=server, domains={"base": BASE, "content": CONTENT}) as group:
        servers = [group.start("serve", "--no-workers") for _ in range(2)]
        group.start("worker")
        ports = [each.port for each in servers]
        is_nginx = request.param == "nginx"
        with nginx(folder / "proxy", ports, HOSTS, port) if is_nginx else caddy(folder / "proxy", ports, port) as proxy:
            yield Behind(group, servers, proxy)
