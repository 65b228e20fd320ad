"""Pages of the appliance: its components for every member, its configuration and backups for administrators."""

import errno
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.backups import BackupResult, backup_jobs, new_path, verify_backup
from appliance.backups.creation import make_backup
from appliance.blobs import LocalPlaces
from appliance.console.frame.routing import ConsoleRequest, File, Page, Visit
from appliance.console.pages.settings.backups import download_backup, show_backups
from appliance.core import clock
from appliance.core.config import Config, load_config
from appliance.core.config.view import list_settings
from appliance.core.database import db
from appliance.core.errors import NotFound, ScopeMissing
from appliance.core.leases import Lease
from appliance.core.pages import PageRequest
from appliance.core.sentences import Sentence
from appliance.monitor import AuditFilter, audit
from appliance.tenants import SignedIn, appliance_scope
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.web.scopes import request_to

HIDDEN = "a phrase nobody should read 81f3"


def test_the_appliance_page_lists_its_components(signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("viewer@acme.test")
    page = browser.get(browser.at("acme", "/console/appliance")).text
    assert all(each in page for each in ("SQLite 3.", "wasmtime", "tryton", "peewee", "MIT"))
    assert "/console/appliance/backups" not in page


@pytest.mark.parametrize("path", ["configuration", "backups", "backups/gos-20260101T000000Z.gosb"])
@pytest.mark.parametrize("person", ["builder@acme.test", "owner@globex.test"])
def test_pages_of_the_appliance_need_an_administrator(signed_in: Callable[[str], Browser], person: str, path: str) -> None:
    browser = signed_in(person)
    answer = browser.get(browser.at("globex" if "globex" in person else "acme", f"/console/appliance/{path}"))
    assert answer.status_code == 403
    assert "console.administrators" in answer.text


def test_the_configuration_says_where_each_value_is_from(signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("owner@acme.test")
    page = browser.get(browser.at("acme", "/console/appliance/configuration")).text
    assert "console.administrators" in page
    assert "flag server.port" in page
    assert "server.shutdown_seconds" not in page
    assert "server.shutdown_seconds" in browser.get(browser.at("acme", "/console/appliance/configuration?show=all")).text


def test_secrets_are_not_shown() -> None:
    own = {"GOS_BACKUP_PASSPHRASE": HIDDEN, "GOS_STORAGE_DATABASE": "postgresql://gos:hush81f3@db/gos"}
    settings = {each.name: each for section in list_settings(load_config(environment=own)).values() for each in section}
    passphrase = settings["backup.passphrase"]
    assert (passphrase.value, passphrase.origin) == ("hidden", "environment GOS_BACKUP_PASSPHRASE")
    assert settings["storage.database"].value == "postgresql://gos:hidden@db/gos"
    assert settings["blobs.secret_key"].value == ""
    assert not [each for each in settings.values() if HIDDEN in each.value or "hush81f3" in each.value]


def test_a_backup_is_created_followed_and_downloaded(signed_in: Callable[[str], Browser], running: Running) -> None:
    browser, page = signed_in("owner@acme.test"), "/console/appliance/backups"
    here = browser.at("acme", page)
    refused = browser.post(here, {"passphrase": HIDDEN, "again": "another"})
    assert (refused.status_code, "enter the same one twice" in refused.text) == (422, True)
    assert browser.post(here, {"passphrase": "short", "again": "short"}).status_code == 422
    assert browser.post(here, {"passphrase": HIDDEN, "again": HIDDEN}).status_code == 200
    ends = clock.monotonic() + 60
    while "Backing up." in (part := browser.get(f"{here}?part=live").text):
        assert clock.monotonic() < ends
    assert "verified" in part
    (link,) = re.findall(rf'href="({page}/gos-[\w.-]+\.gosb)"', part)
    download = browser.get(browser.at("acme", link))
    path = running.config.data / "backups" / link.rpartition("/")[2]
    assert download.content == path.read_bytes()
    assert verify_backup(path, HIDDEN)["tables"]["tenant"] >= 2
    trail = audit.list_entries(appliance_scope(), AuditFilter(), PageRequest()).items
    assert {"backup.make", "backup.download"} <= {each.action for each in trail if each.actor.startswith("user:")}
    path.unlink()


def test_what_went_wrong_is_told_in_the_language_of_the_reader(signed_in: Callable[[str], Browser]) -> None:
    """A background job stores its problem once; readers of different languages see it later."""
    reason = Sentence("the file of authorities %(path)s cannot be read (%(error)s)", path="/srv/ca.pem", error=errno.ENOENT)

    def fail() -> int:
        number = backup_jobs.insert(backup_jobs.REQUESTED)
        claim = backup_jobs.claim(Lease((number,), 0, None, 0), "own")
        assert claim is not None
        backup_jobs.finish(claim, BackupResult(clock.now_ms(), "/none", 0, 0, 0, encrypted=False, problem=reason))
        return number

    number = db.write(fail)
    browser = signed_in("owner@acme.test")
    here = browser.at("acme", "/console/appliance/backups")
    german, english = (browser.get(here, **{"Accept-Language": each}).text for each in ("de", "en"))
    db.write(lambda: db.execute("DELETE FROM backup_job WHERE number = ?", (number,)))
    assert "die Datei mit Zertifizierungsstellen /srv/ca.pem lässt sich nicht lesen (2)" in german
    assert "the file of authorities /srv/ca.pem cannot be read (2)" in english


@pytest.mark.parametrize("person", ["builder@acme.test", "owner@globex.test"])
def test_only_administrators_create_backups(signed_in: Callable[[str], Browser], running: Running, person: str) -> None:
    browser = signed_in(person)
    path = browser.at(person.partition("@")[2].removesuffix(".test"), "/console/appliance/backups")
    assert browser.post(path, {"passphrase": HIDDEN, "again": HIDDEN}).status_code == 403
    assert backup_jobs.find_running() is None


def visit(running: Running, config: Config, login: str) -> Visit:
    request = ConsoleRequest(request_to("acme.localhost", "/console/appliance/backups", tenant="acme"))
    services = replace(running.services, config=config)
    return Visit(services, request, SignedIn("usr_1", login, "owner", running.tenant("acme")), running.tenant("acme"))


def test_only_encrypted_backups_are_listed_and_downloaded(running: Running, tmp_path: Path) -> None:
    settings = replace(running.config.backup, to=str(tmp_path / "backups"), passphrase=HIDDEN)
    data = replace(running.config.storage, database=running.config.database_url)
    config = replace(running.config, backup=settings, storage=data)
    places = LocalPlaces(running.config.data / "blobs")
    path = new_path(config)
    path.parent.mkdir()
    make_backup(config, places, path, HIDDEN)
    name = path.name
    own = visit(running, config, "owner@acme.test")
    page = show_backups(own)
    assert isinstance(page, Page)
    assert [each.name for each in page.values["now"].files] == [name]
    download = download_backup(own, name)
    assert isinstance(download, File)
    assert b"".join(download.pieces) == path.read_bytes()
    with pytest.raises(NotFound):
        download_backup(own, "../key")
    with pytest.raises(ScopeMissing):
        download_backup(visit(running, config, "builder@acme.test"), name)
    path.write_bytes(b"\x28\xb5\x2f\xfd and so on, not encrypted")
    with pytest.raises(NotFound, match="no encrypted backup"):
        download_backup(own, name)
