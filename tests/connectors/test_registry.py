"""Plugins: found by entry point; a broken one is a sentence in the catalogue."""

import sys
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from appliance.connectors.contract import CONTRACT_VERSION, Action, Connector, Context
from appliance.connectors.registry import GROUP, Registry, load_registry

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class Echo(Connector):
    contract_version = 1
    name = "echo"
    title = "Echo"
    version = "1.0.0"
    settings_schema = {"type": "object"}  # noqa: RUF012 - a class variable of the contract
    actions = (Action("say", "Say it back", TEXT, TEXT, "read", {"text": "hi"}),)

    def check(self, ctx: Context) -> str:
        return "Nothing to reach."

    def call(self, action: str, input: Any, ctx: Context) -> dict[str, Any]:  # noqa: A002
        return dict(input)


def variant(**changes: Any) -> type[Connector]:
    return type("Variant", (Echo,), changes)


def load(monkeypatch: pytest.MonkeyPatch, **plugins: Any) -> Registry:
    """A registry of classes, each as if its plugin were installed under the keyword's name."""
    module = type(sys)("plugin_under_test")
    for name, plugin in plugins.items():
        setattr(module, name, plugin)
    monkeypatch.setitem(sys.modules, "plugin_under_test", module)
    return load_registry([EntryPoint(name, f"plugin_under_test:{name}", GROUP) for name in plugins])


def test_an_installed_connector_is_found_with_its_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = load(monkeypatch, echo=Echo)
    installed = registry.find("echo")
    assert installed is not None
    assert installed.connector is Echo
    assert installed.actions["say"].effect == "read"
    assert installed.inputs["say"].problems({}) != []
    assert registry.problems == ()
    assert registry.find("other") is None


class Incomplete(Connector):
    contract_version = 1
    name = "broken"
    title = "Broken"
    version = "1"
    settings_schema = {"type": "object"}  # noqa: RUF012
    actions = Echo.actions


@pytest.mark.parametrize(
    ("plugin", "sentence"),
    [
        (42, "is not a Connector"),
        (dict, "is not a Connector"),
        (Incomplete, "does not implement check"),
        (variant(name="broken", contract_version=CONTRACT_VERSION + 1), "written for version 2"),
        (variant(name="other"), "equal its entry point 'broken'"),
        (variant(name="broken", actions=()), "distinct names"),
        (variant(name="broken", actions=Echo.actions * 2), "distinct names"),
        (variant(name="broken", actions=(Action("a b", "x", TEXT, TEXT, "read"),)), "distinct names"),
        (variant(name="broken", actions=(Action("a", "x", TEXT, TEXT, "maybe", {"text": ""}),)), "effect 'maybe'"),  # type: ignore[arg-type]
        (variant(name="broken", actions=(Action("a", "x", TEXT, TEXT, "read"),)), "sample of action a"),
        (variant(name="broken", actions=(Action("a", "x", {"type": "no"}, TEXT, "read"),)), "input schema of action a"),
        (variant(name="broken", actions=(Action("a", "x", {}, {"$ref": "http://x/"}, "read"),)), "output schema"),
        (variant(name="broken", settings_schema={"pattern": "("}), "settings schema"),
        (variant(name="broken", actions=None), "declaration is broken: TypeError"),
        (variant(name="broken", actions=("say",)), "declaration is broken: AttributeError"),
        (variant(name="broken", triggers=42), "declaration is broken: TypeError"),
    ],
)
def test_a_broken_plugin_is_reported_and_stops_nothing(monkeypatch: pytest.MonkeyPatch, plugin: Any, sentence: str) -> None:
    registry = load(monkeypatch, broken=plugin, echo=Echo)
    assert set(registry.installed) == {"echo"}
    [problem] = registry.problems
    assert problem.name == "broken"
    assert sentence in problem.message


@pytest.mark.parametrize("raising", ["ImportError('no libfoo')", "SystemExit(3)", "ZeroDivisionError()"])
def test_a_plugin_that_does_not_import_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, raising: str) -> None:
    (tmp_path / "exploding_plugin.py").write_text(f"raise {raising}\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry = load_registry([EntryPoint("boom", "exploding_plugin:Boom", GROUP), EntryPoint("gone", "no_such_mod:X", GROUP)])
    assert registry.installed == {}
    assert ["does not import" in problem.message for problem in registry.problems] == [True, True]


def test_two_plugins_cannot_share_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("plugin_under_test")
    module.echo = Echo  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "plugin_under_test", module)
    point = EntryPoint("echo", "plugin_under_test:echo", GROUP)
    registry = load_registry([point, point])
    assert set(registry.installed) == {"echo"}
    assert "is taken by" in registry.problems[0].message
