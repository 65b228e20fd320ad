"""In development a changed connector takes effect without a restart, and calls in flight finish on the old code."""

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.connectors.development import Watch
from appliance.connectors.testing import LoopbackServer
from appliance.integrations.spec import IntegrationSpec
from tests.integrations.world import World

CODE = """
from appliance.connectors.contract import Action, Connector, HttpRequest


class EchoConnector(Connector):
    contract_version = 1
    name = "reloaded-echo"
    title = "Echo"
    version = "1.0.0"
    settings_schema = {"type": "object"}
    actions = (Action("say", "Say a word", {"type": "object"}, {"type": "object"}, "read"),)

    def check(self, ctx):
        return "It answers."

    def call(self, action, input, ctx):
        ctx.http.send(HttpRequest("GET", self.settings["url"]))
        return {"word": "old"}
"""
YAML = """
connector: reloaded-file
title: File
version: 1.0.0
settings: {type: object}
base_url: http://127.0.0.1:1
check: {request: {path: /}, message: It answers.}
actions:
  say: {summary: Say, effect: read, input: {type: object}, output: {type: object}, request: {path: /}}
"""


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    server.answer("/held")
    yield server
    server.close()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The module of a plugin installed in editable mode."""
    package, facts = tmp_path / "gos_reloaded_echo", tmp_path / "gos_reloaded_echo-1.0.dist-info"
    package.mkdir()
    facts.mkdir()
    (package / "__init__.py").write_text("from gos_reloaded_echo.connector import EchoConnector\n")
    (package / "connector.py").write_text(CODE)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: gos-reloaded-echo\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[appliance.connectors]\nreloaded-echo = gos_reloaded_echo:EchoConnector\n")
    (facts / "direct_url.json").write_text(json.dumps({"url": tmp_path.as_uri(), "dir_info": {"editable": True}}))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield package / "connector.py"
    for name in [name for name in sys.modules if name.partition(".")[0] == package.name]:
        del sys.modules[name]


def test_a_changed_plugin_takes_effect_and_a_call_in_flight_ends_on_the_old_code(
    world: World, server: LoopbackServer, module: Path, tmp_path: Path
) -> None:
    watch = Watch(tmp_path / "connectors")
    assert watch.changed() is None
    module.write_text(CODE + "\n")
    first = watch.changed()
    assert first is not None
    world.integrations.registry = first
    assert watch.changed() is None
    world.integrations.create_integration(world.one, "books", IntegrationSpec("reloaded-echo", {"url": f"{server.url}/held"}))
    arrived, released = hold_answer(server)
    answers: list[Any] = []
    caller = threading.Thread(target=lambda: answers.append(world.executor.execute(world.one, world.request("say")).output))
    caller.start()
    assert arrived.wait(30)
    module.write_text(CODE.replace('"old"', '"new"'))
    second = watch.changed()
    assert second is not None
    world.integrations.registry = second
    unchanged = first.find("http"), second.find("http")
    assert unchanged[0] is not None
    assert unchanged[1] is not None
    assert unchanged[0].connector is unchanged[1].connector
    released.set()
    caller.join(30)
    server.answer("/held")
    answers.append(world.executor.execute(world.one, world.request("say")).output)
    assert answers == [{"word": "old"}, {"word": "new"}]


def hold_answer(server: LoopbackServer) -> tuple[threading.Event, threading.Event]:
    """Events: the request for /held has arrived; it may be answered."""
    released = server.hold("/held")
    return server.expect("/held"), released


def test_a_plugin_broken_while_edited_is_reported_and_recovers(module: Path, tmp_path: Path) -> None:
    watch = Watch(tmp_path / "connectors")
    module.write_text(CODE + "\nthis is no Python")
    broken = watch.changed()
    assert broken is not None
    assert [problem.name for problem in broken.problems if "SyntaxError" in problem.message] == ["reloaded-echo"]
    module.write_text(CODE)
    mended = watch.changed()
    assert mended is not None
    assert mended.find("reloaded-echo") is not None


def test_files_in_the_folder_are_added_changed_and_removed(tmp_path: Path) -> None:
    folder = tmp_path / "connectors"
    watch = Watch(folder)
    folder.mkdir()
    versions = []
    for text in (YAML, YAML.replace("1.0.0", "1.0.1"), None):
        (folder / "reloaded-file.yaml").write_text(text) if text else (folder / "reloaded-file.yaml").unlink()
        registry = watch.changed()
        assert registry is not None
        installed = registry.find("reloaded-file")
        versions.append(installed.connector.version if installed else None)
    assert versions == ["1.0.0", "1.0.1", None]
