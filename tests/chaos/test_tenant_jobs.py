"""An export, import or reset started in the console outlives the process that runs it, and is done exactly once."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString

import httpx
import psycopg
import pytest

from appliance.solutions import write_zip
from tests.chaos.conftest import ADMINISTRATORS
from tests.chaos.harness import Chaos
from tests.chaos.test_imports import sign_in, wait_for_page
from tests.processes.world import wait_until
from tests.store.cluster import Cluster
from tests.store.two_servers import TwoServers, two_servers

EXPORT, RESET, TENANTS = "/console/settings/export", "/console/settings/reset", "/console/appliance/tenants"
FILES = {"solution.yaml": b"name: fresh\n", "collections/pots.yaml": b"name: pots\nfields:\n  - {name: a, type: text}\n"}
PASSPHRASE = "a phrase that no row may have"
LINK = re.compile(rf'href="({EXPORT}/[\w-]+\.gost)"')
PROGRESS, DONE = 'data-testid="progress"', 'data-testid="done"'


def start_export(browser: httpx.Client) -> None:
    assert browser.post(EXPORT, data={"passphrase": PASSPHRASE, "again": PASSPHRASE}).status_code == 303


def download(browser: httpx.Client) -> bytes:
    """The tenant's export as soon as it is offered."""
    (link,) = LINK.findall(wait_for_page(browser, f"{EXPORT}?part=live", 'data-testid="download"'))
    return browser.get(link).raise_for_status().content


def upload(browser: httpx.Client, content: bytes) -> str:
    """The path of an uploaded export that has been read."""
    sent = browser.post(f"{TENANTS}/import", files={"file": ("acme.gost", content)})
    assert sent.status_code == 303, sent.text
    path = str(sent.headers["Location"])
    assert browser.post(f"{path}/open", data={"passphrase": PASSPHRASE}).status_code == 303
    wait_for_page(browser, path, 'data-testid="run-import"')
    return path


def start_import(browser: httpx.Client, path: str) -> None:
    assert browser.post(f"{path}/run", data={"name": "copied", "title": "Copied"}).status_code == 303


def start_reset(browser: httpx.Client) -> None:
    form = {"confirm": "acme", "solution": "own"}
    assert browser.post(RESET, data=form, files={"file": ("s.zip", write_zip(FILES))}).status_code == 303


def check_reset(api: httpx.Client) -> None:
    """The tenant has what the solution has, and was reset once."""
    assert [each["name"] for each in api.get("/api/v1/datapool").raise_for_status().json()["data"]] == ["pots"]
    trail = api.get("/api/v1/logs/audit").raise_for_status().json()["data"]
    assert [each["action"] for each in trail].count("tenant.reset") == 1


def check_files(folder: Path, most: int = 0) -> None:
    """Soon after a job, at most so many files of jobs are stored, and none is half written."""
    wait_until(lambda: len(list((folder / "blobs").glob("*/jobs/*"))) <= most)
    wait_until(lambda: list((folder / "blobs" / "incoming").iterdir()) == [])


# -- two servers


@pytest.fixture
def servers(cluster: Cluster, tmp_path: Path) -> Iterator[TwoServers]:
    with two_servers(tmp_path, cluster.make_database(), console=ADMINISTRATORS) as started:
        yield started


@contextmanager
def halted(url: str, lock: LiteralString) -> Iterator[psycopg.Connection]:
    """Inside the block, others wait for the lock of a table; yields a connection that can look who does."""
    with psycopg.connect(url) as server, psycopg.connect(url, autocommit=True) as observer:
        server.execute(lock)
        yield observer


def wait_for_halt(observer: psycopg.Connection, statement: str) -> None:
    """Wait until a statement waits for a lock."""
    sql = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
    wait_until(lambda: observer.execute(sql, (statement,)).fetchone())


def test_an_export_of_a_killed_server_is_shown_and_made_by_the_other(servers: TwoServers) -> None:
    browser = sign_in(servers.folder)
    with servers.client(0, **browser) as here, servers.client(1, **browser) as there:
        with halted(servers.database, "LOCK TABLE document IN ACCESS EXCLUSIVE MODE") as observer:
            start_export(here)
            wait_for_halt(observer, 'DECLARE gos_%"document"%')
            assert PROGRESS in there.get(f"{EXPORT}?part=live").text
            servers.kill(0)
        assert len(download(there)) > 1_000
        check_files(servers.folder, 1)


def test_an_import_of_a_killed_server_is_shown_and_written_by_the_other(servers: TwoServers) -> None:
    browser = sign_in(servers.folder)
    with servers.client(0, **browser) as here, servers.client(1, **browser) as there:
        start_export(here)
        path = upload(here, download(there))
        with halted(servers.database, "LOCK TABLE collection IN SHARE MODE") as observer:
            start_import(here, path)
            wait_for_halt(observer, "INSERT INTO %collection%")
            assert PROGRESS in there.get(path).text
            servers.kill(0)
        page = wait_for_page(there, path, DONE)
        assert "The tenant copied was imported" in page
        with psycopg.connect(servers.database) as connection:
            assert connection.execute("SELECT count(*) FROM tenant WHERE id = 'copied'").fetchone() == (1,)
            assert connection.execute("SELECT count(*) FROM collection WHERE tenant_id = 'copied'").fetchone() == (1,)
            assert connection.execute("SELECT count(*) FROM tenant_job WHERE sealed IS NOT NULL").fetchone() == (0,)
        check_files(servers.folder, 1)


def test_a_reset_of_a_killed_server_is_shown_and_made_by_the_other(servers: TwoServers) -> None:
    browser = sign_in(servers.folder)
    with servers.client(0, **browser) as here, servers.client(1, **browser) as there, servers.client(1) as api:
        api.post("/api/v1/documents", content=b"some text", params={"name": "a.txt"}).raise_for_status()
        with halted(servers.database, "LOCK TABLE document IN SHARE MODE") as observer:
            start_reset(here)
            wait_for_halt(observer, 'DELETE FROM "document"%')
            assert PROGRESS in there.get(f"{RESET}?part=live").text
            servers.kill(0)
        wait_for_page(there, f"{RESET}?part=live", DONE)
        check_reset(api)
        check_files(servers.folder)


# -- the next start of one process


@contextmanager
def halted_at_file(path: Path) -> Iterator[None]:
    """Inside the block, whoever opens the file waits until it is killed."""
    aside = path.with_name("aside")
    path.rename(aside)
    os.mkfifo(path)
    try:
        yield
    finally:
        aside.replace(path)


def file_at(appliance: Chaos, sql: LiteralString) -> Path:
    ((place,),) = appliance._rows(sql)
    return appliance.folder / "blobs" / str(place)


def test_an_export_of_a_killed_appliance_is_made_after_the_next_start(appliance: Chaos) -> None:
    browser = sign_in(appliance.folder)
    appliance.start()
    with appliance.client() as client:
        client.post("/api/v1/documents", content=b"some text", params={"name": "a.txt"}).raise_for_status()
        client.headers.update(browser)
        with halted_at_file(file_at(appliance, "SELECT place FROM blob")):
            start_export(client)
            wait_until(lambda: appliance._rows("SELECT stage FROM tenant_job WHERE state = 'running'") == [("database",)])
            appliance.kill()
        appliance.start()
        assert len(download(client)) > 1_000
        check_files(appliance.folder, 1)


def test_an_import_of_a_killed_appliance_is_written_after_the_next_start(appliance: Chaos) -> None:
    browser = sign_in(appliance.folder)
    appliance.start()
    with appliance.client() as client:
        client.headers.update(browser)
        start_export(client)
        path = upload(client, download(client))
        with halted_at_file(file_at(appliance, "SELECT place FROM tenant_job WHERE kind = 'import'")):
            start_import(client, path)
            wait_until(lambda: appliance._rows("SELECT stage FROM tenant_job WHERE task = 'import'") == [("reading",)])
            appliance.kill()
        appliance.start()
        assert "The tenant copied was imported" in wait_for_page(client, path, DONE)
        check_files(appliance.folder, 1)


def test_a_reset_of_a_killed_appliance_is_made_once_after_the_next_start(appliance: Chaos) -> None:
    browser = sign_in(appliance.folder)
    appliance.start()
    with appliance.client() as client, appliance.client() as api:
        client.headers.update(browser)
        start_reset(client)
        appliance.kill()  # wherever it is
        appliance.start()
        wait_for_page(client, f"{RESET}?part=live", DONE)
        check_reset(api)
        check_files(appliance.folder)
