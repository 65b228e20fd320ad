"""nginx, with the lines of docs/trusted-header.md, signs people in: they enter, and nobody enters by a header of their own."""

import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from appliance.connectors.testing import free_port
from appliance.testing.running import Running
from tests.architecture.source_tree import ROOT
from tests.cluster.proxies import MAIN, replaced
from tests.console.sign_in.test_trusted_header import Visitor, is_inside, roles_of, sent
from tests.sites.live_server import await_that

BIND = "127.0.0.2"
PEOPLE = {"ann": "her password", "bob": "his password"}


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def live(start_appliance: Callable[..., Running], tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Running]:
    roles = [{"group": "operations", "tenant": "acme", "role": "operator"}, {"group": "bosses", "tenant": "acme", "role": "owner"}]
    running = start_appliance(
        tmp_path_factory.mktemp("nginx-data"), console__provision="off", server__public_port=port, sign_in__trusted_headers=[{
            "id": "proxy", "name": "Corp", "header": "Remote-User", "groups_header": "Remote-Groups",
            "login_header": "Remote-Email", "proxies": [f"{BIND}/32"], "roles": roles,
        }],
    )  # fmt: skip
    running.tenant("acme")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def proxy(live: Running, tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("nginx")
    (folder / "conf.d").mkdir()
    (folder / "people").write_text("".join(f"{name}:{{PLAIN}}{password}\n" for name, password in PEOPLE.items()))
    (example,) = re.findall(r"```nginx\n(.*?)```", (ROOT / "docs" / "trusted-header.md").read_text("utf8"), re.DOTALL)
    server = f"http://127.0.0.1:{live.config.server.port}"
    here = {"/etc/nginx/people": f"{folder}/people", "http://10.0.0.9:8080": f"{server};\n    proxy_bind {BIND}"}
    location = replaced(example, here)
    (folder / "conf.d/gos.conf").write_text(f"server {{\nlisten 127.0.0.1:{port};\n{location}}}\n")
    (folder / "nginx.conf").write_text(MAIN.format(folder=folder))
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin") or "nginx"
    with (folder / "error.log").open("ab") as errors:
        process = subprocess.Popen([program, "-p", str(folder), "-c", "nginx.conf"], stdout=errors, stderr=errors)
    try:
        await_that(lambda: (folder / "nginx.pid").exists() and bool((folder / "nginx.pid").read_text().strip()))
        yield folder
    finally:
        process.terminate()
        process.wait(30)


class ProxyVisitor(Visitor):
    """A browser that connects to nginx, and enters a password there."""

    def __init__(self, running: Running, port: int, name: str) -> None:
        super().__init__(running, "127.0.0.3")
        self.port = port
        secret = b64encode(f"{name}:{PEOPLE.get(name, '')}".encode()).decode()
        self.always = [("Authorization", f"Basic {secret}")] if name else []


def test_nginx_signs_people_in(live: Running, proxy: Path, port: int) -> None:
    visitor = ProxyVisitor(live, port, "ann")
    page = visitor.go(visitor.at("acme", "/console/account"))
    assert (page.status_code, "ann@example.com" in page.text) == (200, True)
    assert roles_of("ann@example.com") == {"acme": "operator"}


def test_a_header_of_the_client_is_replaced(live: Running, proxy: Path, port: int) -> None:
    visitor = ProxyVisitor(live, port, "bob")
    page = visitor.go(visitor.at("acme", "/console/account"), sent("ann", "bosses", "ann@example.com"))
    assert (page.status_code, "bob@example.com" in page.text) == (200, True)
    assert roles_of("bob@example.com") == {"acme": "operator"}


def test_whoever_nginx_does_not_know_is_not_let_through(live: Running, proxy: Path, port: int) -> None:
    visitor = ProxyVisitor(live, port, "")
    assert visitor.go(visitor.at("acme", "/console/"), sent("ann", "bosses")).status_code == 401


def test_around_nginx_the_header_is_nothing(live: Running, proxy: Path) -> None:
    visitor = Visitor(live, "127.0.0.3")
    page = visitor.go(visitor.at("", "/sign-in"), sent("ann", "bosses", "ann@example.com"))
    assert (page.status_code, 'name="password"' in page.text) == (200, True)
    assert not is_inside(visitor, sent("ann", "bosses", "ann@example.com"))


def test_another_person_at_nginx_ends_the_session(live: Running, proxy: Path, port: int) -> None:
    visitor = ProxyVisitor(live, port, "ann")
    visitor.go(visitor.at("acme", "/console/"))
    visitor.always = ProxyVisitor(live, port, "bob").always
    page = visitor.go(visitor.at("acme", "/console/account"))
    assert (page.status_code, "bob@example.com" in page.text) == (200, True)
