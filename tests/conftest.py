"""Fixtures for all tests: one running appliance for the session, with two tenants that must never see each other."""

import gc
import secrets
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, settings

from appliance.core.config.sections import Blobs as Settings
from appliance.core.database import caches
from appliance.core.database.db import database
from appliance.tenants import service as tenants
from appliance.testing.running import Running, make_config, start
from appliance.webapps.domains import lookups
from tests import matrices
from tests.backups.sealing import seal_cheaply
from tests.checking import check_types_once
from tests.compiling import compile_once
from tests.hashing import hash_cheaply
from tests.reading import read_once
from tests.repeated_writes import check_repeatable, repeat_writes, unrepeated
from tests.spreading import LONG, Spreading
from tests.store.cluster import Cluster, running_cluster
from tests.store.opening import migrated
from tests.store.spread import SpreadAppliance, start_spread
from tests.syncing import sync_never
from tests.trusting import trust_once
from tests.webapps.name_server import NameServer, running_name_server

_live: list[Running] = []
_spread = pytest.StashKey[list[SpreadAppliance]]()

hash_cheaply()
seal_cheaply()
sync_never()
check_types_once()
compile_once()
trust_once()
read_once()
# No test fails on a busy machine, and generated examples are the same every time; `--hypothesis-profile default` varies them.
settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")
# Python caches compiled tests, whatever the environment says: compiling 900 files takes as long as collecting the tests in them.
_dont_write_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, False
gc.disable()  # until all tests are collected: they are never freed, so the collector would walk through them in vain


def pytest_collection_finish() -> None:
    """Collected tests live until the end, so the garbage collector does not have to look at them again."""
    sys.dont_write_bytecode = _dont_write_bytecode
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the long matrices completely (CONTRIBUTING.md)")
    parser.addoption("--server", action="store_true", help="run the live appliance of the tests on PostgreSQL")
    parser.addoption("--spread", action="store_true", help="the same, of two servers and a worker; connections go to either server")
    parser.addoption("--record-long-tests", action="store_true", help="with --all: record of which tests other runs have a part")
    parser.addoption("--seed", help="selects the part of the matrices that a run without --all tests (default: the commit)")
    parser.addoption("--repeat-writes", action="store_true", help="run each function of db.write twice (docs/testing.md)")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_spread] = []
    config.option.seed = config.option.seed or matrices.commit()  # the processes of a run get it from the first
    if config.option.repeat_writes:
        repeat_writes()
    if config.option.record_long_tests and not hasattr(config, "workerinput"):
        if not config.option.all or config.option.keyword or not _runs_everything(config):
            raise pytest.UsageError("--record-long-tests needs all tests: use --all, name none and select none with -k")
        config.pluginmanager.register(matrices.LongTestsRecorder())


def pytest_report_header(config: pytest.Config) -> list[str]:
    seed = config.option.seed
    lines = ["matrices: whole" if config.option.all else f"matrices: sampled with --seed {seed}; --all runs them whole"]
    return [*lines, f"servers: two and a worker; connections are spread with --seed {seed}"] if config.option.spread else lines


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With `--spread`, a failure says which connections went where and what the processes logged."""
    report = yield
    if report.failed:
        report.sections += [("servers", f"--seed {item.config.option.seed}\n{each}") for each in item.config.stash[_spread]]
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of the running appliance come first: it owns the process's database, later tests open their own."""
    items.sort(key=lambda item: (not _is_live(item), item.nodeid.partition("::")[0] not in LONG))
    if not config.option.all:
        unwanted = matrices.left_out(items, config.option.seed) - set(config.args)
        if _runs_everything(config):
            unwanted |= matrices.left_out_long((item.nodeid for item in items if item.nodeid not in unwanted), config.option.seed)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in unwanted])
        items[:] = [item for item in items if item.nodeid not in unwanted]


def _runs_everything(config: pytest.Config) -> bool:
    return bool(config.args == config.getini("testpaths"))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Spreading:
    """Distributes the tests of a parallel run."""
    return Spreading(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if _live and not _is_live(item):
        _live.pop().stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """No test finds the database of another file: it would pass only after that file, which not every run does."""
    yield
    if not _live and (nextitem is None or nextitem.path != item.path):
        database.initialize(None)
        caches.empty_all()


def _is_live(item: pytest.Item) -> bool:
    return "running" in getattr(item, "fixturenames", ())


@pytest.fixture(autouse=True)
def repeatable_writes(request: pytest.FixtureRequest) -> Iterator[None]:
    """With `--repeat-writes`, a test fails when a function of `db.write` was not repeatable; see the marker `writes_once`."""
    if request.node.get_closest_marker("writes_once"):
        with unrepeated():
            yield
        return
    yield
    check_repeatable()


@pytest.fixture(scope="session")
def name_server() -> Iterator[NameServer]:
    """The DNS server of the live appliance; it knows only the names that a test sets."""
    with running_name_server() as server, pytest.MonkeyPatch.context() as patience:
        patience.setattr(lookups, "SECONDS", 30.0)  # a busy machine answers late
        yield server


@pytest.fixture(scope="session")
def start_appliance(request: pytest.FixtureRequest) -> Callable[..., Running]:
    """Starts an appliance with a data folder and settings: one process, or those of `--spread`."""
    option = request.config.option

    def begin(folder: Path, **settings: Any) -> Running:
        database = request.getfixturevalue("cluster").make_database() if option.server or option.spread else ""
        if not option.spread:
            return start(make_config(folder, storage__database=database, **settings))
        bucket = vars(request.getfixturevalue("bucket")) | {"prefix": f"spread/{secrets.token_hex(6)}"}  # each is an installation
        settings = {f"blobs__{name}": value for name, value in bucket.items()} | settings
        spread = start_spread(folder, database, option.seed, **settings)
        request.config.stash[_spread].append(spread)
        return spread

    return begin


@pytest.fixture(scope="session")
def running(
    start_appliance: Callable[..., Running], tmp_path_factory: pytest.TempPathFactory, name_server: NameServer
) -> Iterator[Running]:
    """A live appliance; each test uses its own processes, collections and labels."""
    live = start_appliance(
        tmp_path_factory.mktemp("data"), demo__order_system=True, egress__allow=["127.0.0.0/8"], limits__route_calls=100_000,
        domains__resolvers=[name_server.address], approvals__email_integration="mail", approvals__letter_seconds=0,
        console__administrators=["owner@acme.test", "ada@northgate.test", "nobody-yet@northgate.test"],
        mail__server="smtp://127.0.0.1:9", mail__sender="gos@acme.test",
    )  # fmt: skip
    _live.append(live)
    live.tenant("acme")
    live.tenant("globex")
    yield live
    while _live:
        _live.pop().stop()


@pytest.fixture(scope="session")
def gos_appliance(running: Running) -> Running:
    """The testing kit uses the appliance of the other tests."""
    return running


@pytest.fixture(scope="session")
def acme(running: Running) -> Iterator[httpx.Client]:
    """Tenant acme's API with every scope."""
    with running.api("acme") as client:
        yield client


@pytest.fixture(scope="session")
def globex(running: Running) -> Iterator[httpx.Client]:
    """Tenant globex's API with every scope."""
    with running.api("globex") as client:
        yield client


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A private PostgreSQL server for the tests."""
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def bucket() -> Iterator[Settings]:
    """The settings of a bucket on a server of the tests' own."""
    from tests.blobs.bucket import running_bucket  # its library takes a while to load, and few tests have a bucket

    with running_bucket() as settings:
        yield settings


@pytest.fixture
def two_tenants(store_url: str) -> Iterator[None]:
    """The process's database, with the tenants acme and globex in it."""
    with migrated(store_url):
        for name in ("acme", "globex"):
            tenants.create_tenant(name, name)
        yield


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, to be opened and migrated: the test runs on both dialects."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/gos.db"
    return str(request.getfixturevalue("cluster").emptied())
