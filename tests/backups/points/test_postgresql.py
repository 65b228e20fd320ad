"""The commands of docs/backup.md for PostgreSQL, run as they are written there: the second before a deletion is restored.

Contents are in the data folder, or in a bucket, which the test copies as the tools of a bucket's provider do.
"""

import hashlib
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import obstore
import pytest

from appliance.backups.restoring import ACCESS_TABLES
from appliance.blobs import open_bucket
from appliance.core import clock
from appliance.core.config.sections import Blobs as BucketSettings
from appliance.core.database import db
from appliance.testing import running
from tests.architecture.source_tree import ROOT
from tests.backups.conftest import digests
from tests.backups.job_processes import open_processes
from tests.backups.test_transfer import tenant_rows
from tests.processes.world import wait_until
from tests.solutions.test_reset_elsewhere import at, check_moment, complete, die_at, fill_up
from tests.solutions.test_reset_steps import begin, check_complete, take_over, work
from tests.store.cluster import Cluster, server_programs

BASE, MOMENT = "base-20260228T020000Z", "2026-03-01 09:30:00+00"
CONTENT = b"the plan that is needed later" * 2000
SETTINGS = ("listen_addresses = ''", "shared_buffers = 32MB")


def blocks_of_page() -> list[str]:
    """The commands of the section, in order."""
    page = (ROOT / "docs" / "backup.md").read_text("utf8")
    section = page.partition("### On PostgreSQL\n")[2].partition("\n## ")[0]
    fence = r"^```sh unverified: tests/backups/points/test_postgresql.py[^\n]*\n(.*?)^```"
    return re.findall(fence, section, re.DOTALL | re.MULTILINE)


class Contents(Protocol):
    """Where the appliance stores contents, and the copies of them that were made before."""

    settings: dict[str, Any]

    def copy(self, site: "Site") -> None: ...
    def copied(self, site: "Site") -> set[str]: ...
    def lose(self, site: "Site", place: str) -> None: ...
    def put_back(self, site: "Site") -> None: ...


class FolderContents:
    """In the data folder, copied by the commands of the page."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}

    def copy(self, site: "Site") -> None:
        site.run(site.copy_contents, of_server=False)

    def copied(self, site: "Site") -> set[str]:
        """The digests of the copies."""
        files = (path for path in (site.points / "blobs").rglob("*") if path.is_file())
        return {hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def lose(self, site: "Site", place: str) -> None:
        (site.data / "blobs" / place).unlink()

    def put_back(self, site: "Site") -> None:
        site.run(site.put_back, of_server=False)


class BucketContents:
    """Below a prefix of its own in a bucket, each object of which is copied."""

    def __init__(self, bucket: BucketSettings) -> None:
        own = replace(bucket, prefix=f"site-{secrets.token_hex(6)}")
        self.settings: dict[str, Any] = {
            "store": "s3", "bucket": own.bucket, "prefix": own.prefix, "endpoint": own.endpoint, "region": own.region,
            "key_id": own.key_id, "secret_key": own.secret_key,
        }  # fmt: skip
        self._bucket = open_bucket(own)
        self._copies: dict[str, bytes] = {}

    def copy(self, site: "Site") -> None:
        paths = [entry["path"] for page in obstore.list(self._bucket) for entry in page]
        self._copies |= {path: bytes(obstore.get(self._bucket, path).bytes()) for path in paths}

    def copied(self, site: "Site") -> set[str]:
        """The digests of the copies."""
        return {hashlib.sha256(content).hexdigest() for content in self._copies.values()}

    def lose(self, site: "Site", place: str) -> None:
        obstore.delete(self._bucket, place)

    def put_back(self, site: "Site") -> None:
        for path, content in self._copies.items():
            obstore.put(self._bucket, path, content)


class Site:
    """A server, its archive and the data folder of an appliance, all in a folder that takes the place of those of the page."""

    def __init__(self, folder: Path, contents: Contents) -> None:
        self.contents = contents
        self.folder, self.points, self.data = folder, folder / "points", folder / "gos"
        self.cluster = Cluster(folder)
        self.configure, self.make_base, self.copy_contents, self.restore, self.put_back, self.check = blocks_of_page()
        self.database = self.cluster.url("gos")
        (folder / "data").rename(folder / "main")
        with (folder / "main" / "postgresql.conf").open("a") as file:
            file.write("\n".join((*SETTINGS, f"unix_socket_directories = '{folder}'\n")))
        self.run(f"mkdir {self.points}; pg_ctl --pgdata=/var/lib/postgresql/15/main --log={folder}/log --wait start")
        self.run("createdb --template=template0 gos")

    def run(self, script: str, moment: str = "", *, of_server: bool = True) -> None:
        """Run commands of the page, which must succeed, as the owner of the server, or as the user of the appliance."""
        code, output = self.attempt(script, moment, of_server=of_server)
        assert code == 0, f"{script}\n{output}"

    def attempt(self, script: str, moment: str = "", *, of_server: bool = True) -> tuple[int, str]:
        """Run commands of the page: the exit code and the output."""
        base = next((path.name for path in sorted(self.points.glob("base-*"))), BASE)
        places = {
            "/mnt/points": self.points, "/var/lib/postgresql/15": self.folder, "/var/lib/gos": self.data, MOMENT: moment,
            BASE: base,
        }  # fmt: skip
        for text, value in places.items():
            script = script.replace(text, str(value))
        environment = {
            "PATH": f"{server_programs()}:{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(self.folder),
            "PGHOST": str(self.folder), "PGUSER": "gos", "GOS_STORAGE_DATABASE": self.database,
            **{f"GOS_BLOBS_{name.upper()}": value for name, value in self.contents.settings.items()},
        }  # fmt: skip
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, text=True, check=False, timeout=120, **(self.cluster.owner() if of_server else {}),
        )  # fmt: skip
        return done.returncode, done.stdout

    @contextmanager
    def appliance(self) -> Iterator[running.Running]:
        stored = {f"blobs__{name}": value for name, value in self.contents.settings.items()}
        live = running.start(running.make_config(
            self.data, storage__database=self.database, blobs__keep_deleted="8d", storage__writers=1, **stored
        ))  # fmt: skip
        try:
            yield live
        finally:
            live.stop()

    def digests(self) -> dict[str, str]:
        """Of every table, while the appliance is stopped."""
        db.open_database(self.database)
        try:
            return digests()
        finally:
            db.close_database()


@pytest.fixture(params=["folder", "bucket"])
def contents(request: pytest.FixtureRequest) -> Contents:
    return FolderContents() if request.param == "folder" else BucketContents(request.getfixturevalue("bucket"))


@pytest.fixture
def site(contents: Contents) -> Iterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="gos-pg-"))  # not in pytest's folder: the owner of the server must reach it
    try:
        site = Site(folder, contents)
        try:
            yield site
        finally:
            site.run("pg_ctl --pgdata=/var/lib/postgresql/15/main --wait --mode=immediate stop")
    finally:
        shutil.rmtree(folder)


def whole_second() -> str:
    """The next whole second, when it is over, in the words of PostgreSQL."""
    moment = clock.now_ms() // 1000 + 1
    wait_until(lambda: clock.now_ms() > moment * 1000 + 50)
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S+00")


def check_that_a_loss_is_noticed(site: Site) -> None:
    """The last command of the page fails and names a content that is missing, and succeeds when the copies are put back."""
    db.open_database(site.database)
    try:
        ((place, sha256),) = db.rows("SELECT place, sha256 FROM blob WHERE size = ?", (len(CONTENT),))
    finally:
        db.close_database()
    site.contents.lose(site, place)
    again = f"rm {site.points}/restored.gosb\n{site.check}"
    code, output = site.attempt(again, of_server=False)
    assert (code, sha256 in output) == (1, True), output
    site.contents.put_back(site)
    site.run(again, of_server=False)


def test_the_second_before_a_deletion_is_restored_by_postgresql(site: Site) -> None:
    site.run(site.configure)
    with site.appliance() as live, live.api("acme") as api:
        api.post("/api/v1/datapool", json={"name": "stock", "fields": [{"name": "n", "type": "number"}]}).raise_for_status()
        early = api.post("/api/v1/documents", params={"name": "early.txt"}, content=CONTENT[:-1]).raise_for_status()
        site.run(site.make_base)
        for number in range(20):
            api.post("/api/v1/datapool/stock/entities", json={"n": number}).raise_for_status()
        late = api.post("/api/v1/documents", params={"name": "plan.txt"}, content=CONTENT).raise_for_status()
        documents = [each.json()["data"]["id"] for each in (early, late)]
        key = live.key("acme")
    before = site.digests()
    moment = whole_second()
    with site.appliance() as live, live.client("acme.localhost", {"X-API-Key": key}) as api:
        api.delete("/api/v1/datapool/stock", params={"allow_loss": "true"}).raise_for_status()
        for document in documents:
            api.delete(f"/api/v1/documents/{document}").raise_for_status()
        db.write(lambda: db.execute("UPDATE blob SET touched_at = 0"))  # as if they had been deleted a day ago
        live.services.blobs.collect()
        assert db.rows("SELECT sha256 FROM blob WHERE size > 50000") == []
        site.contents.copy(site)
    assert site.digests() != before
    site.run(site.restore, moment)
    after = site.digests()
    assert {name: digest for name, digest in after.items() if name not in ACCESS_TABLES} == {
        name: digest for name, digest in before.items() if name not in ACCESS_TABLES
    }
    assert set(re.findall(r"DELETE FROM (\w+)", site.restore)) == set(ACCESS_TABLES)
    assert {after[name].split()[0] for name in ACCESS_TABLES} == {"0"}
    site.run(site.check, of_server=False)
    check_that_a_loss_is_noticed(site)
    shutil.rmtree(site.data / "content-cache", ignore_errors=True)  # what follows is read from the store
    with site.appliance() as live, live.client("acme.localhost", {"X-API-Key": key}) as api:
        for document, content in zip(documents, (CONTENT[:-1], CONTENT), strict=True):
            assert api.get(f"/api/v1/documents/{document}/content").raise_for_status().content == content
        rows = api.get("/api/v1/datapool/stock/entities", params={"limit": 200}).raise_for_status().json()["data"]
        assert sorted(row["n"] for row in rows) == list(range(20))
        assert {sha256 for (sha256,) in db.rows("SELECT sha256 FROM blob")} <= site.contents.copied(site)
    site.run(site.make_base)  # the next one, on the new timeline
    assert len(list(site.points.glob("base-*"))) == 2


@pytest.mark.parametrize("contents", ["folder"], indirect=True)
def test_a_reset_that_was_under_way_is_restored_by_postgresql_and_completed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.run(site.configure)
    with open_processes(site.data, site.database) as here:
        fill_up(here)
        site.run(site.make_base)
        process, claim = begin(here)
        die_at(process, claim, monkeypatch, "deleting")
        before, others = tenant_rows("initech"), tenant_rows("hooli")
        moment = whole_second()
        complete(here, monkeypatch, "deleting", others)
    site.run(site.restore, moment)
    with at(here.world, here) as there:
        restored = tenant_rows("initech")
        assert {name for name in before if before[name] != restored[name]} <= set(ACCESS_TABLES)
        check_moment(claim, "deleting")
        there.alive.add("one")
        work(*take_over(there, "one", "three"), monkeypatch)
        check_complete(there, {name: rows for name, rows in others.items() if name not in ACCESS_TABLES})
