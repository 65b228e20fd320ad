"""The proxies of packaging/cluster, run for real: their files as shipped, except for ports, folders and the servers' addresses."""

import shutil
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from appliance.connectors.testing import free_port
from tests.sites.live_server import await_that
from tests.sites.signing import Authority, text_of

FOLDER = Path(__file__).parents[2] / "packaging" / "cluster"
MAIN = """
daemon off;
user root;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log info;
events {{ worker_connections 1024; }}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/conf.d/*.conf;
}}
"""


@dataclass(frozen=True)
class Proxy:
    """A running proxy on this machine."""

    port: int
    http_port: int
    authority: str  # the certificate that its own are signed with, in PEM

    def trust(self) -> ssl.SSLContext:
        """The context of a client that trusts the proxy's certificates only."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=self.authority)
        return context

    def client(
        self, host: str, *, address: str = "127.0.0.9", headers: Mapping[str, str] | None = None, http2: bool = True
    ) -> httpx.Client:
        """A client of this host that connects from `address` of this machine and trusts the proxy's certificate."""
        transport = _ToProxy(self.trust(), address, http2=http2)
        url = f"https://{host}:{self.port}"
        return httpx.Client(base_url=url, transport=transport, headers=headers, timeout=60, trust_env=False)


class _ToProxy(httpx.HTTPTransport):
    """Connects to this machine whatever the host of the URL, which the proxy learns by SNI and Host."""

    def __init__(self, context: ssl.SSLContext, address: str, *, http2: bool) -> None:
        super().__init__(verify=context, local_address=address, http2=http2)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.extensions = {**request.extensions, "sni_hostname": request.url.host}
        url, request.url = request.url, request.url.copy_with(host="127.0.0.1")
        try:
            return super().handle_request(request)
        finally:
            request.url = url  # which redirects refer to


def replaced(text: str, replacements: Mapping[str, str]) -> str:
    """The text with each of these replaced, which must be in it."""
    for old, new in replacements.items():
        assert old in text, f"the configuration no longer has {old!r}"
        text = text.replace(old, new)
    return text


@contextmanager
def nginx(folder: Path, servers: Sequence[int], hosts: Mapping[str, Sequence[str]], port: int) -> Iterator[Proxy]:
    """nginx with packaging/cluster/nginx, in front of the servers on these ports.

    `hosts` has the names in each certificate: that of the appliance is `tls`, the others are named after their custom domain.
    """
    tls, sites, authority = folder / "tls", folder / "conf.d", Authority()
    for each in (tls, sites):
        each.mkdir(parents=True)
    http_port = free_port()
    here = {"/etc/nginx/": f"{folder}/", "listen 443": f"listen 127.0.0.1:{port}"}
    first, second = servers
    here |= {"listen 80": f"listen 127.0.0.1:{http_port}"}
    here |= {"gos-1:8080": f"127.0.0.1:{first}", "gos-2:8080": f"127.0.0.1:{second}"}
    text = replaced((FOLDER / "nginx/gos.conf").read_text(), here)
    (sites / "gos.conf").write_text(text)
    example = "\n".join(line.removeprefix("#") for line in text.splitlines() if line.startswith("#   "))
    for domain, names in hosts.items():
        chain, key = authority.pair(*names)
        (tls / f"{domain}.crt").write_text(chain)
        (tls / f"{domain}.key").write_text(key)
        if domain != "tls":
            (sites / f"{domain}.conf").write_text(replaced(example, {"shop.example": domain}))
    shutil.copy(FOLDER / "nginx/gos-proxy.conf", folder / "gos-proxy.conf")
    (folder / "nginx.conf").write_text(MAIN.format(folder=folder))
    command = [shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin") or "nginx", "-p", str(folder), "-c", "nginx.conf"]
    with _running(command, folder / "error.log", port, {}):
        yield Proxy(port, http_port, text_of(authority.certificate))


@contextmanager
def caddy(folder: Path, servers: Sequence[int], port: int) -> Iterator[Proxy]:
    """Caddy with packaging/cluster/caddy, in front of the servers on these ports; it issues its certificates itself."""
    folder.mkdir()
    http_port, (first, second) = free_port(), servers
    own = f"admin off\n\tlocal_certs\n\tskip_install_trust\n\thttp_port {http_port}\n\thttps_port {port}\n\ton_demand_tls {{"
    here = {"gos-1:8080": f"127.0.0.1:{first}", "gos-2:8080": f"127.0.0.1:{second}", "on_demand_tls {": own}
    (folder / "Caddyfile").write_text(replaced((FOLDER / "caddy/Caddyfile").read_text(), here))
    command = ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]
    with _running(command, folder / "error.log", port, {"HOME": str(folder), "XDG_DATA_HOME": str(folder)}):
        yield Proxy(port, http_port, (folder / "caddy/pki/authorities/local/root.crt").read_text())


@contextmanager
def _running(command: Sequence[str | Path], log: Path, port: int, environment: Mapping[str, Any]) -> Iterator[None]:
    with log.open("ab") as errors:
        process = subprocess.Popen(command, stdout=errors, stderr=errors, env={"PATH": "/usr/sbin:/usr/bin:/bin", **environment})
    try:
        await_that(lambda: _listens(process, port, log))
        yield
    finally:
        process.terminate()
        process.wait(30)


def _listens(process: "subprocess.Popen[bytes]", port: int, log: Path) -> bool:
    if process.poll() is not None:
        raise AssertionError(log.read_text()[-3000:])
    try:
        httpx.get(f"http://127.0.0.1:{port}/", trust_env=False)
    except httpx.ConnectError:
        return False
    except httpx.TransportError:
        return True  # it wants TLS
    return True
