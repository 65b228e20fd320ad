"""Two servers on one database, and what is written through every door of one while a tenant is reset or deleted at the other."""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from appliance.app.parts import blob_holders, make_places, place_holders
from appliance.app.store import open_store
from appliance.backups.resetting import PRESERVED
from appliance.blobs import Blobs, installation_id
from appliance.core import clock
from appliance.core.config import Config, load_config
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.solutions import write_zip
from appliance.tenants import appliance_scope, service
from appliance.tenants.keys import KeySpec, issue_key
from tests.backups.test_emptying import count_rows
from tests.chaos.conftest import ADMINISTRATORS
from tests.chaos.doors import DOORS, MARK, SOLUTION, Visitor, is_done, new_mark
from tests.chaos.launcher import hold_deletions
from tests.chaos.test_imports import sign_in, wait_for_page
from tests.processes.world import wait_until
from tests.store.two_servers import TwoServers, two_servers

RESET = "/console/settings/reset"
ENDLESS, TWO_DAYS_MS = 2, 2 * 86_400_000
LIMITS = {"limits": {"route_calls": 1_000_000}, "console": ADMINISTRATORS}
MOST_SECONDS = 60.0
IS_OPEN = "SELECT 1 FROM tenant WHERE id = 'acme' AND closed_at IS NULL AND COALESCE(reset_at, 0) <= 0"
REASON = re.compile("his tenant (is being|was) reset|his host name is not served here|<h1>You were signed out")
"""What pages of the console say."""
AT_BASE = "an entity at the base host"
"""The tenant of such a request is known once its key is found, after its body has come; so it begins after the reset."""
TRACES = PRESERVED | {"log_line", "tally", "webapp_request", "webapp_traffic"}
"""Tables that a reset preserves, or that tell of requests, also of refused ones."""


@dataclass
class Pair:
    """Two servers with the tenant acme, which has the solution: one acts on the tenant, and the other has the visitors."""

    servers: TwoServers
    browser: dict[str, str]
    visitor: Visitor
    sealer: Sealer
    config: Config

    def apply(self, key: str) -> None:
        with self.servers.client(0, **{"X-API-Key": key}) as api:
            applied = api.post("/api/v1/solutions/apply", content=write_zip(SOLUTION), headers={"Content-Type": "application/zip"})
            assert applied.is_success, applied.text

    def start_endless(self) -> None:
        """Executions that write entities for as long as they run."""
        with self.servers.client(1) as api:
            for _ in range(ENDLESS):
                api.post("/api/v1/processes/endless/execute", json={"run": new_mark()}).raise_for_status()

    def start_reset(self, solution: Mapping[str, bytes] = SOLUTION) -> None:
        with self.servers.client(0, **self.browser) as browser:
            form = {"confirm": "acme", "solution": "own"}
            response = browser.post(RESET, data=form, files={"file": ("s.zip", write_zip(solution))})
            assert response.status_code == 303, response.text

    def delete(self) -> None:
        """Start the deletion of the tenant, as whoever runs the appliance."""
        with self.appliance() as api:
            assert api.delete("/api/v1/appliance/tenants/acme").status_code == 202

    def wait_for_deletion(self) -> None:
        wait_until(lambda: not db.rows("SELECT 1 FROM tenant WHERE id = 'acme'"), MOST_SECONDS)

    def create(self) -> None:
        """Create a tenant with this id, and apply the solution to it."""
        with self.appliance() as api:
            assert api.post("/api/v1/appliance/tenants", json={"id": "acme"}).status_code == 201
        scope = service.system_scope("acme")
        self.apply(issue_key(scope, self.sealer, KeySpec("new", sorted(scope.scopes)))[1])

    def appliance(self) -> httpx.Client:
        scope = appliance_scope()
        key = issue_key(scope, self.sealer, KeySpec("operator", sorted(scope.scopes)))[1]
        return self.servers.client(0, "localhost", **{"X-API-Key": key})

    def empty(self) -> None:
        """Let tenants be emptied from now on."""
        (self.servers.folder / "emptying").touch()

    def wait_for_reset(self) -> None:
        with self.servers.client(0, **self.browser) as browser:
            page = wait_for_page(browser, f"{RESET}?part=live", 'data-testid="done"')
            assert 'data-testid="problem"' not in page


@contextmanager
def open_pair(folder: Path, database: str) -> Iterator[Pair]:
    """The servers with their visitors, and their database in this process; what empties tenants waits for `Pair.empty`."""
    with two_servers(folder, database, partial(hold_deletions, folder / "emptying"), **LIMITS) as servers:
        browser = sign_in(folder)
        with servers.client(0) as api:
            agent = api.post("/api/v1/keys", json={"name": "agent", "kind": "agent", "scopes": ["entities.write"]})
            assert agent.is_success, agent.text
        config = load_config(folder / "config.yaml", environment={}, flags={"storage.data": str(folder)})
        sealer = open_store(config)
        try:
            pair = Pair(servers, browser, Visitor(servers, 1, agent.json()["data"]["key"], browser), sealer, config)
            pair.apply(servers.key)
            yield pair
        finally:
            (folder / "emptying").touch()
            db.close_database()


@dataclass
class Writing:
    """What one writer has done: how many answers said that it was written, the answers that said so although the tenant was closed
    before the request, and the other answers, the last of which ended it."""

    done: int = 0
    late: list[str] = field(default_factory=list)
    others: list[tuple[int, str]] = field(default_factory=list)

    def write(self, visitor: Visitor, name: str, closed: threading.Event, is_last: Callable[[int, str], bool]) -> None:
        """Use the door again and again, until it is refused in the way that `is_last` knows."""
        with visitor.client() as client:
            until = clock.monotonic() + MOST_SECONDS
            while clock.monotonic() < until:
                is_closed = closed.is_set()
                status, text = visitor.use(client, DOORS[name], new_mark())
                if is_done(status, text):
                    self.done += 1
                    self.late += [text] if is_closed else []
                    continue
                self.others.append((status, text))
                if is_last(status, text):
                    return
        raise TimeoutError(f"{name} was not refused")


def write_until(visitor: Visitor, is_last: Callable[[int, str], bool], act: Callable[[], None]) -> list[tuple[int, str]]:
    """Write through every door until all are refused, which happens after `act`, and nothing is written from when the tenant is
    closed; returns the refusals."""
    writings, closed = {name: Writing() for name in DOORS}, threading.Event()
    with ThreadPoolExecutor(len(DOORS)) as threads:
        work = [threads.submit(each.write, visitor, name, closed, is_last) for name, each in writings.items()]
        wait_until(lambda: all(each.done >= 2 or each.others for each in writings.values()), MOST_SECONDS)
        assert {name: each.others for name, each in writings.items() if each.others} == {}
        act()
        wait_until(lambda: not db.rows(IS_OPEN))
        closed.set()
        for each in work:
            each.result(MOST_SECONDS)
    assert {name: each.late for name, each in writings.items() if each.late} == {}
    return [answer for each in writings.values() for answer in each.others]


def check_refusals(answers: Iterable[tuple[int, str]], *codes: str) -> None:
    """Each has one of the codes, or is a page of the console that says why."""
    for status, text in answers:
        code = re.search(r'\\?"code\\?": ?\\?"(\w+)', text)
        is_refused = code[1] in codes if code is not None else "<!doctype html>" in text and REASON.search(text) is not None
        assert is_refused, (status, text)


def check_late_requests(pair: Pair, replace: Callable[[], None], *codes: str) -> None:
    """Requests that begin at every door before the tenant is replaced, and whose bodies come after it, are refused with one of the
    codes and write nothing."""
    with ExitStack() as requests:
        finish = {name: requests.enter_context(pair.visitor.start(DOORS[name], new_mark())) for name in DOORS if name != AT_BASE}
        replace()
        before = rows_of_solution()
        answers = {name: each() for name, each in finish.items()}
    assert {name: answer for name, answer in answers.items() if is_done(*answer)} == {}
    check_refusals(answers.values(), *codes)
    assert (marked_rows(), rows_of_solution()) == ({}, before)
    check_contents(pair)


def rows_of_solution() -> dict[str, int]:
    return {table: number for table, number in count_rows("acme").items() if table not in TRACES}


def marked_rows() -> dict[str, list[Any]]:
    """By table, some rows in which a writer wrote; without what those tables say that count or log requests."""
    kinds = "SELECT name FROM pragma_table_list WHERE type IN ('virtual', 'shadow')"
    tables = {*db.database.obj.get_tables()} - {str(name) for (name,) in (db.rows(kinds) if db.is_sqlite() else [])}
    rows = {table: [row for row in db.rows(f'SELECT * FROM "{table}"') if MARK in str(row)] for table in tables}  # noqa: S608
    return {table: each[:3] for table, each in rows.items() if each}


def check_contents(pair: Pair) -> None:
    """Soon only what the tenant has is stored, and every file has its row: what is collected after a day is everything else."""
    blobs = Blobs(make_places(pair.config, installation_id(pair.sealer)), blob_holders(), place_holders())
    clock.move(TWO_DAYS_MS)
    try:
        blobs.collect()
    finally:
        clock.move(-TWO_DAYS_MS)
    folder = pair.config.data / "blobs"
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files == {str(place) for (place,) in db.rows("SELECT place FROM blob")}
    used = {str(sha256) for (sha256,) in db.rows("SELECT sha256 FROM webapp_file")}
    assert used == {str(sha256) for (sha256,) in db.rows("SELECT sha256 FROM blob")}
