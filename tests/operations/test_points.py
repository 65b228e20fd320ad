"""Administrators see in the console and by REST from when until when a restore to a second is possible, and when it lags."""

import html
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.backups.points import get_report
from appliance.cli import main
from appliance.core import clock
from appliance.tenants import service
from appliance.testing import running
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.operations.conftest import ADMINISTRATOR, PASSPHRASE, PASSWORD, issue
from tests.processes.world import wait_until

PAGE = "/console/appliance/backups"


def points_of(live: Running) -> Any:
    with live.client(live.config.domains.base, {"X-API-Key": issue(live, "appliance.read")}) as client:
        return client.get("/api/v1/appliance/points").raise_for_status().json()["data"]


def page_of(live: Running) -> str:
    browser = Browser(live)
    browser.sign_in(ADMINISTRATOR, PASSWORD, "acme")
    return browser.get(browser.at("acme", PAGE)).text


def field(page: str, name: str) -> str:
    (text,) = re.findall(rf'data-testid="{name}"[^>]*>(.*?)</(?:pre|dd|div)>', page, re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", "", text))


def test_an_appliance_without_points_says_what_it_can_do(live: Running) -> None:
    expected = "server" if live.config.storage.database else "off"
    assert points_of(live) == {"state": expected}
    page = page_of(live)
    assert ("by its own means" in page) == (expected == "server")
    assert ("backup.points_to" in page) == (expected == "off")
    assert "points-command" not in page


def test_the_state_is_for_readers_of_the_appliance_alone(live: Running, operator: httpx.Client) -> None:
    with live.client(live.config.domains.base, {"X-API-Key": issue(live, "appliance.users")}) as client:
        assert client.get("/api/v1/appliance/points").status_code == 403
    assert operator.get("/api/v1/appliance/points", params={"x": "1"}).status_code == 400


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "the points"
    folder.mkdir()
    return folder


def start_shipping(folder: Path, place: Path) -> Running:
    config = running.make_config(
        folder / "data", backup__points_to=str(place), backup__passphrase=PASSPHRASE, console__administrators=[ADMINISTRATOR]
    )
    live = running.start(config)
    live.tenant("acme")
    live.user(ADMINISTRATOR, PASSWORD, "acme")
    return live


def test_the_command_of_the_page_restores_the_last_point(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = start_shipping(tmp_path, place)
    try:
        wait_until(lambda: points_of(live)["state"] == "shipped", 60)
        before = clock.now_ms()
        live.tenant("late")
        wait_until(lambda: get_report(live.config).last_at > before, 60)
        points, page = points_of(live), page_of(live)
        assert (points["place"], points["encrypted"], "problem" in points) == (str(place), True, False)
        assert points["restore_from"] == points["base_at"] < points["restore_until"]
        assert points["lag_seconds"] < 60
        assert "points-shipped" in page
        assert points["restore_from"] in page
        command = field(page, "points-command")
        assert shlex.split(command)[:5] == ["gos", "--data", f"{live.config.data}-restored", "restore", str(place)]
    finally:
        live.stop()
    monkeypatch.setenv("GOS_BACKUP_PASSPHRASE", PASSPHRASE)
    monkeypatch.setattr(sys, "stdin", None)
    assert main(shlex.split(command)[1:]) == 0
    restored = running.start(running.make_config(Path(f"{live.config.data}-restored")))
    try:
        assert "late" in {row.id for row in service.list_tenants()}
    finally:
        restored.stop()


def test_a_place_that_cannot_be_reached_is_a_warning(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.backups.points.shipping.RETRY_SECONDS", 0.1)
    live = start_shipping(tmp_path, place)
    try:
        wait_until(lambda: points_of(live)["state"] == "shipped", 60)
        place.rename(tmp_path / "away")
        live.tenant("unshipped")
        points = wait_until(lambda: (points_of(live) if points_of(live)["state"] == "failed" else None), 60)
        assert "does not exist; create it, or mount its disk" in points["problem"]
        assert points["problem_at"] <= clock.rfc3339(clock.now_ms())
        assert "does not exist; create it, or mount its disk" in field(page_of(live), "points-problem")
        (tmp_path / "away").rename(place)
        wait_until(lambda: points_of(live)["state"] == "shipped", 60)
        assert "points-problem" not in page_of(live)
    finally:
        live.stop()


def test_points_that_lag_are_a_warning(tmp_path: Path, place: Path) -> None:
    """The thread that ships has ended, and nothing else says so."""
    live = start_shipping(tmp_path, place)
    try:
        wait_until(lambda: points_of(live)["state"] == "shipped", 60)
        assert live.appliance.points is not None
        live.appliance.points.stop()
        live.move_clock(121_000)
        points = points_of(live)
        assert (points["state"], points["lag_seconds"] > 120) == ("late", True)
        assert "more than two minutes" in field(page_of(live), "points-problem")
    finally:
        live.stop()
