"""A backup asked for in the console is shown by every process, and made anew when the one that makes it is killed."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from appliance.backups import verify_backup
from tests.chaos.conftest import ADMINISTRATORS
from tests.chaos.harness import Chaos
from tests.chaos.test_imports import sign_in, wait_for_page
from tests.chaos.test_tenant_jobs import PASSPHRASE, halted, halted_at_file, wait_for_halt
from tests.cluster.several import Process, Several, several
from tests.processes.world import wait_until
from tests.store.cluster import Cluster
from tests.store.two_servers import TwoServers, two_servers

PAGE = "/console/appliance/backups"
LOCK, HALTED = "LOCK TABLE document IN ACCESS EXCLUSIVE MODE", 'DECLARE gos_%"document"%'
LINK = re.compile(rf'href="({PAGE}/gos-[\w.-]+\.gosb)"')


def request_backup(browser: httpx.Client) -> int:
    return browser.post(PAGE, data={"passphrase": PASSPHRASE, "again": PASSPHRASE}).status_code


def check_one_backup(browser: httpx.Client, folder: Path) -> None:
    """The one backup as soon as the page offers it: it is complete, and nothing else is left."""
    page = wait_for_page(browser, f"{PAGE}?part=live", 'data-testid="verified"')
    (link,) = LINK.findall(page)
    path = folder / "downloaded.gosb"
    path.write_bytes(browser.get(link).raise_for_status().content)
    assert verify_backup(path, PASSPHRASE)["tables"]["tenant"] == 2  # with the row of the appliance itself
    assert [each.suffix for each in (folder / "backups").iterdir()] == [".gosb"]


def is_progress_shown(browser: httpx.Client) -> bool:
    return 'data-testid="progress"' in browser.get(f"{PAGE}?part=live").text


# -- two servers with workers


@pytest.fixture
def servers(cluster: Cluster, tmp_path: Path) -> Iterator[TwoServers]:
    with two_servers(tmp_path, cluster.make_database(), console=ADMINISTRATORS) as started:
        yield started


def test_a_backup_of_a_killed_server_is_shown_and_made_by_the_other(servers: TwoServers) -> None:
    browser = sign_in(servers.folder)
    with servers.client(0, **browser) as here, servers.client(1, **browser) as there:
        with halted(servers.database, LOCK) as observer:
            assert request_backup(here) == 303
            wait_for_halt(observer, HALTED)
            assert is_progress_shown(there)
            assert request_backup(there) == 409, "only one at a time"
            servers.kill(0)
        check_one_backup(there, servers.folder)
        with psycopg.connect(servers.database) as connection:
            assert connection.execute("SELECT state, sealed, fence FROM backup_job").fetchall() == [("ended", None, 2)]


# -- servers without workers, and workers


@pytest.fixture
def database(cluster: Cluster) -> str:
    return cluster.make_database()


@pytest.fixture
def group(tmp_path: Path, database: str) -> Iterator[Several]:
    with several(tmp_path, database, console=ADMINISTRATORS) as group:
        yield group


def kill(group: Several, process: Process) -> None:
    os.killpg(process.forked.pid, signal.SIGKILL)
    process.forked.wait(60)
    group.processes.remove(process)


def test_a_server_without_workers_gives_a_backup_to_a_worker_and_shows_it(group: Several, database: str) -> None:
    cookies = sign_in(group.folder)
    servers = [group.start("serve", "--no-workers") for _ in range(2)]
    with group.client(servers[0]) as here, group.client(servers[1]) as there:
        for each in (here, there):
            each.headers.update(cookies)
        assert request_backup(here) == 303
        assert "Waiting for a process with workers" in there.get(f"{PAGE}?part=live").text
        with halted(database, LOCK) as observer:
            first = group.start("worker")
            wait_for_halt(observer, HALTED)
            assert "Copying the database" in here.get(f"{PAGE}?part=live").text
            kill(group, first)
        assert is_progress_shown(there), "nobody makes it, but it is not forgotten"
        group.start("worker")
        for each in (here, there):
            check_one_backup(each, group.folder)


# -- the next start of one process


def test_a_backup_of_a_killed_appliance_is_made_after_the_next_start(appliance: Chaos) -> None:
    browser = sign_in(appliance.folder)
    appliance.start()
    with appliance.client() as client:
        client.post("/api/v1/documents", content=b"some text", params={"name": "a.txt"}).raise_for_status()
        client.headers.update(browser)
        ((place,),) = appliance._rows("SELECT place FROM blob")
        with halted_at_file(appliance.folder / "blobs" / str(place)):
            assert request_backup(client) == 303
            wait_until(lambda: appliance._rows("SELECT stage FROM backup_job WHERE state = 'running'") == [("database",)])
            wait_until(lambda: list((appliance.folder / "backups").glob(".gos-making-*/.gos-backup-*/gos.db")))
            appliance.kill()
        appliance.start()
        check_one_backup(client, appliance.folder)
