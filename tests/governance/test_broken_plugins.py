"""Plugins that fail in any of their methods: the call fails with a code, and no other call is affected."""

from collections.abc import Mapping
from typing import Any

import pytest

from appliance.connectors.contract import Action, Context
from appliance.connectors.registry import Installed, Registry
from appliance.core.pages import PageRequest
from appliance.governance.executor.requests import ActionFailed, ActionRequest
from appliance.integrations import CallFilter, IntegrationSpec, history
from tests.integrations.world import Ledger, World


class Broken(Ledger):
    """A ledger whose settings' `label` names the method that leaves with an exit or a bug."""

    name = "broken"

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self._break("init")

    def _break(self, method: str) -> None:
        failing_method, _, failure = self.settings["label"].partition(" ")
        if failing_method == method:
            raise SystemExit(3) if failure == "exit" else ZeroDivisionError("a bug")

    def check(self, ctx: Context) -> str:
        self._break("check")
        return super().check(ctx)

    def effect_of(self, action: Action, input: Any) -> Any:  # noqa: A002 - the contract's word
        self._break("effect_of")
        return super().effect_of(action, input)

    def call(self, action: str, input: Any, ctx: Context) -> dict[str, Any]:  # noqa: A002
        self._break("call")
        return super().call(action, input, ctx)

    def close(self) -> None:
        self._break("close")


def install_broken(world: World, label: str) -> None:
    installed = {**world.integrations.registry.installed, "broken": Installed(Broken, "test")}
    world.integrations.registry = Registry(installed)
    world.integrations.create_integration(world.one, "bad", IntegrationSpec("broken", {"token": "tok-1", "label": label}))


@pytest.mark.parametrize("method", ["init", "effect_of", "call"])
@pytest.mark.parametrize("failure", ["bug", "exit"])
def test_a_broken_plugin_fails_its_call_only(world: World, method: str, failure: str) -> None:
    install_broken(world, f"{method} {failure}")
    world.ledger()
    with pytest.raises(ActionFailed) as caught:
        world.executor.execute(world.one, ActionRequest("bad", "look", {}))
    assert (caught.value.error_class, caught.value.code) == ("system_error", "connector_failed")
    assert "The connector broken 1.0 failed with an internal error" in caught.value.message
    assert world.executor.execute(world.one, world.request()).status == "executed"


@pytest.mark.parametrize("failure", ["bug", "exit"])
def test_testing_the_settings_of_a_broken_plugin_fails(world: World, failure: str) -> None:
    install_broken(world, f"check {failure}")
    result = world.integrations.test_integration(world.one, "bad")
    assert (result.ok, result.error_class) == (False, "system_error")


@pytest.mark.parametrize("failure", ["bug", "exit"])
def test_a_plugin_that_fails_to_close_affects_no_result(world: World, failure: str) -> None:
    install_broken(world, f"close {failure}")
    world.executor.execute(world.one, ActionRequest("bad", "book", {}))
    world.integrations.replace_integration(
        world.one, "bad", IntegrationSpec("broken", {"token": "tok-2", "label": f"close {failure}"})
    )
    world.executor.execute(world.one, ActionRequest("bad", "book", {}))
    calls = history.list_calls(world.one, "bad", CallFilter(), PageRequest()).items
    assert [(call.status, call.outcome) for call in calls] == [("succeeded", "done")] * 2
    assert len(Ledger.booked) == 2
