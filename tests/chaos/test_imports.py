"""An import of a file in the console outlives the process that runs it: every row is stored exactly once."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg

from appliance.app.store import open_store
from appliance.core.config import load_config
from appliance.core.database import db
from appliance.tenants import people
from appliance.tenants import service as tenants
from appliance.tenants.sign_in import sessions
from tests.chaos.harness import Chaos
from tests.processes.world import wait_until
from tests.store.cluster import Cluster
from tests.store.two_servers import SECONDS, two_servers

ROWS = 5_000
FILE = "run,what\n" + "".join(f"imported-{number},row\n" for number in range(ROWS))
PAGE = "/console/datapool/marks/import"


def sign_in(folder: Path) -> dict[str, str]:
    """The headers of a browser in which an owner of acme is signed in."""
    config = load_config(folder / "config.yaml", environment={}, flags={"storage.data": str(folder)})
    sealer = open_store(config)
    person = people.create_user("ada@acme.test", "a password of ada's own")
    people.add_member(tenants.system_scope("acme"), "ada@acme.test", "owner")
    cookie = f"__Host-gos={sessions.create_session(sealer, person.id, 'acme', lifetime_ms=3_600_000)}"
    db.close_database()
    return {"Cookie": cookie, "Sec-Fetch-Site": "same-origin", "X-API-Key": ""}


def wait_for_page(browser: httpx.Client, path: str, text: str) -> str:
    """The page of the import as soon as it contains a text."""
    return str(wait_until(lambda: page if text in (page := browser.get(path).text) else "", SECONDS * 2))


def start_import(browser: httpx.Client) -> str:
    """Upload the file, check it, and start its import; the path of its page."""
    sent = browser.post(PAGE, files={"file": ("marks.csv", FILE)})
    assert sent.status_code == 303, sent.text
    path = sent.headers["Location"]
    assert browser.post(f"{path}/try", data={"m0": "run", "m1": "what"}).status_code == 303
    wait_for_page(browser, path, "run-import")
    assert browser.post(f"{path}/run").status_code == 303
    return str(path)


def check_every_row(api: httpx.Client, page: str) -> None:
    created = re.search(r"<dt>Created</dt><dd>([^<]+)</dd>", page)
    assert created
    assert re.sub(r"\D", "", created[1]) == str(ROWS)
    query = {"filter": {"run": {"_starts_with": "imported-"}}, "aggregate": {"rows": {"fn": "count"}}}
    counted = api.post("/api/v1/datapool/marks/query", json=query).raise_for_status().json()["data"]
    assert counted == [{"rows": ROWS}]


@contextmanager
def held_import(url: str) -> Iterator[None]:
    """Inside the block, the import is halted between the rows of a chunk that is not the first and their commit."""
    with psycopg.connect(url) as server, psycopg.connect(url, autocommit=True) as observer:
        progress = "SELECT 1 FROM file_import WHERE report IS NOT NULL AND state = 'importing'"
        wait_until(lambda: observer.execute(progress).fetchone())
        assert server.execute("SELECT state FROM file_import FOR UPDATE").fetchone() == ("importing",)
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%file_import%'"
        wait_until(lambda: observer.execute(waiting).fetchone())
        yield


def test_an_import_of_a_killed_server_is_shown_and_finished_by_the_other(cluster: Cluster, tmp_path: Path) -> None:
    with two_servers(tmp_path, cluster.make_database()) as servers:
        browser = sign_in(tmp_path)
        with servers.client(0, **browser) as here, servers.client(1, **browser) as there, servers.client(1) as api:
            path = start_import(here)
            with held_import(servers.database):
                assert "read so far" in there.get(path).text
                servers.kill(0)
            check_every_row(api, wait_for_page(there, path, ">Imported<"))


def test_an_import_of_a_killed_appliance_is_finished_after_the_next_start(tmp_path: Path) -> None:
    appliance = Chaos(tmp_path, "none", 1, worker=False)
    appliance.prepare()
    browser = sign_in(tmp_path)
    appliance.start()
    try:
        with appliance.client() as client:
            client.headers.update(browser)
            path = start_import(client)
            progress = "SELECT state FROM file_import WHERE report IS NOT NULL"
            wait_until(lambda: appliance._rows(progress) == [("importing",)])
            appliance.kill()
            assert appliance._rows(progress) == [("importing",)], "the import was over before the kill"
            appliance.start()
            page = wait_for_page(client, path, ">Imported<")
        with appliance.client() as api:
            check_every_row(api, page)
    finally:
        appliance.kill_all()
