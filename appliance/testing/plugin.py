"""The pytest plugin: fixtures for tests of processes, pages and WebApps against a running appliance.

The appliance is imported only when a fixture needs it, so the plugin costs nothing in test runs that do not use it.
"""

import re
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from .external_systems import ForeignSystem, Mailbox
    from .kit import Gos
    from .pages import Pages
    from .running import Running
    from .tenants import QaTenant

_failed = pytest.StashKey[bool]()
_sessions: dict[Any, dict[tuple[str, str], Any]] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the plugin's command line options and ini settings, all prefixed with `gos`."""
    group = parser.getgroup("gos", "Governed Operations Service")
    group.addoption("--gos-url", default="", help="test the appliance at this URL of a tenant instead of starting one")
    group.addoption("--gos-key-file", default="", help="file with the API key for --gos-url")
    group.addoption("--gos-people", default="", help='file with logins for --gos-url: {"approver": {"login": "", "password": ""}}')
    group.addoption("--gos-ca-file", default="", help="CA certificate to verify --gos-url with")
    parser.addini("gos_solution", "solution folder of gos_tenant, or `starter`", default="")
    parser.addini("gos_evidence", "folder for traces and screenshots of failed tests; empty stores none", default="gos-evidence")
    parser.addini("gos_traces", "record Playwright traces of pages", type="bool", default=True)
    parser.addini("gos_strict", "fail tests whose pages log errors or send requests to other hosts", type="bool", default=True)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gos_solution(folder, secrets={}): the solution folder to apply to gos_tenant, or `starter`")
    config.addinivalue_line("markers", "gos_lenient: pages of this test may log errors and send requests to other hosts")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Mark failed tests, so that `gos_pages` stores their evidence."""
    report = yield
    if report.failed:
        item.stash[_failed] = True
    return report


@pytest.fixture(scope="session")
def gos_settings() -> dict[str, Any]:
    """Settings of the appliance as `section__name: value`; override this fixture to add your own."""
    return {
        "demo__order_system": True, "egress__allow": ["127.0.0.0/8"], "limits__route_calls": 100_000,
        "approvals__email_integration": "mail", "approvals__letter_seconds": 0,
    }  # fmt: skip


@pytest.fixture(scope="session")
def gos_appliance(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, gos_settings: dict[str, Any]
) -> "Iterator[Running | None]":
    """A running appliance in this process, which can run only one at a time; None with --gos-url."""
    if request.config.getoption("--gos-url"):
        yield None
        return
    from .running import make_config, start

    running = start(make_config(tmp_path_factory.mktemp("gos"), **gos_settings))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def gos(request: pytest.FixtureRequest, gos_appliance: "Running | None") -> "Iterator[Gos]":
    """The appliance under test: `tenant`, `drain`, `clock.advance`, `mail`, `foreign`."""
    appliance = _make_remote(request.config) if gos_appliance is None else _make_local(gos_appliance)
    yield appliance
    appliance.close()


def _make_local(running: "Running") -> "Gos":
    from .kit import LocalGos

    return LocalGos(running=running)


def _make_remote(config: pytest.Config) -> "Gos":
    from .remote import RemoteGos, read_logins

    url = config.getoption("--gos-url")

    if not config.getoption("--gos-key-file"):
        raise pytest.UsageError("--gos-url needs --gos-key-file: a file with an API key of the tenant")
    key = Path(config.getoption("--gos-key-file")).read_text("utf8").strip()
    people, ca_file = config.getoption("--gos-people"), config.getoption("--gos-ca-file")
    logins = read_logins(Path(people)) if people else {}
    return RemoteGos(url=url.rstrip("/"), key=key, logins=logins, ca_file=Path(ca_file) if ca_file else None)


@pytest.fixture
def gos_tenant(gos: "Gos", request: pytest.FixtureRequest) -> "QaTenant":
    """A tenant with the solution from the marker or the ini setting; tests of a module with the same solution share it."""
    marker = request.node.get_closest_marker("gos_solution")
    chosen = marker.args[0] if marker else request.config.getini("gos_solution")
    if not chosen:
        return gos.plain
    folder = chosen if chosen == "starter" else str(_resolve_folder(request, chosen, from_ini=marker is None))
    existing = next((each for each in gos.tenants.values() if folder in each.solutions), None)
    return existing or gos.tenant(solution=folder, secrets=marker.kwargs.get("secrets") if marker else None)


def _resolve_folder(request: pytest.FixtureRequest, folder: str, *, from_ini: bool) -> Path:
    """The solution folder; the ini setting is relative to pytest's root, the marker to the test file."""
    return (request.config.rootpath if from_ini else request.path.parent) / folder


@pytest.fixture
def gos_api(gos_tenant: "QaTenant") -> Any:
    """An httpx client of the tenant's API with every scope."""
    return gos_tenant.api


@pytest.fixture
def gos_mail(gos: "Gos", gos_tenant: "QaTenant") -> "Mailbox":
    """The mailbox of the tenant's integration `mail`, which also notifies approvers; emptied of e-mails from earlier tests."""
    if not any(each["slug"] == "mail" for each in gos_tenant.ask("GET", "/integrations")):
        gos.connect_mail(gos_tenant)
    gos.drain()  # E-mails from earlier tests may still be in transit.
    gos.mail.letters.clear()
    return gos.mail


@pytest.fixture
def gos_foreign(gos: "Gos") -> "ForeignSystem":
    """A foreign system, cleared of calls and answers from other tests."""
    gos.foreign.received.clear()
    gos.foreign.answers.clear()
    return gos.foreign


@pytest.fixture(scope="module")
def gos_playwright(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Playwright, from pytest-playwright if that is installed, because each thread can have only one instance."""
    if request.config.pluginmanager.hasplugin("playwright"):
        yield request.getfixturevalue("playwright")
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="module")
def gos_browser(gos_playwright: Any) -> "Iterator[Browser]":
    """One Chromium for the tests of a module."""
    from .pages import launch

    browser = launch(gos_playwright)
    yield browser
    browser.close()


@pytest.fixture
def gos_pages(gos: "Gos", gos_browser: "Browser", request: pytest.FixtureRequest) -> "Iterator[Pages]":
    """The pages of this test, monitored for errors; closed afterwards, and stored as evidence if the test failed."""
    from .pages import Evidence, Pages

    folder = request.config.getini("gos_evidence")
    evidence = Evidence(request.config.rootpath / folder if folder else None, request.config.getini("gos_traces"))
    sessions = _sessions.setdefault(gos.domain, {})
    pages = Pages(gos_browser, gos, evidence, sessions)
    yield pages
    lenient = request.node.get_closest_marker("gos_lenient") or not request.config.getini("gos_strict")
    troubles = [] if lenient else pages.troubles
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.nodeid).strip("-")[-150:]
    pages.close(name, failed=bool(troubles) or request.node.stash.get(_failed, False))
    if troubles:
        pytest.fail("the pages had problems (the marker gos_lenient allows them):\n" + "\n".join(troubles), pytrace=False)


@pytest.fixture
def gos_page_as(request: pytest.FixtureRequest, gos_pages: "Pages") -> "Callable[..., Page]":
    """`gos_page_as("approver", width=390, scheme="dark")`: a page signed in with a role, of gos_tenant or the given tenant."""
    from .pages import View

    def open_page(role: str = "owner", tenant: "QaTenant | None" = None, **view: Any) -> "Page":
        return gos_pages.open(tenant or request.getfixturevalue("gos_tenant"), role, View(**view))

    return open_page


@pytest.fixture
def gos_page(gos_page_as: "Callable[..., Page]") -> "Page":
    """The console's home page, signed in as the tenant's owner."""
    return gos_page_as("owner")
