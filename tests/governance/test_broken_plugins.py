"""Plugins that break in every place they are called: the call fails, coded, and nobody else is touched."""

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

    def _break(self, here: str) -> None:
        where, _, how = self.settings["label"].partition(" ")
        if where == here:
            raise SystemExit(3) if how == "exit" else ZeroDivisionError("a bug")

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


def broken(world: World, label: str) -> None:
    installed = {**world.integrations.registry.installed, "broken": Installed(Broken, "test")}
    world.integrations.registry = Registry(installed)
    world.integrations.create_integration(world.one, "bad", IntegrationSpec("broken", {"token": "tok-1", "label": label}))


@pytest.mark.parametrize("where", ["init", "effect_of", "call"])
@pytest.mark.parametrize("how", ["bug", "exit"])
def test_the_call_fails_coded_and_the_neighbour_works(world: World, where: str, how: str) -> None:
    broken(world, f"{where} {how}")
    world.ledger()
    with pytest.raises(ActionFailed) as caught:
        world.executor.execute(world.one, ActionRequest("bad", "look", {}))
    assert (caught.value.error_class, caught.value.code) == ("system_error", "connector_failed")
    assert "The connector broken 1.0 failed with an internal error" in caught.value.message
    assert world.executor.execute(world.one, world.request()).status == "executed"


@pytest.mark.parametrize("how", ["bug", "exit"])
def test_a_test_of_its_settings_says_so(world: World, how: str) -> None:
    broken(world, f"check {how}")
    found = world.integrations.test_integration(world.one, "bad")
    assert (found.ok, found.error_class) == (False, "system_error")


@pytest.mark.parametrize("how", ["bug", "exit"])
def test_one_that_cannot_be_closed_spoils_no_answer(world: World, how: str) -> None:
    broken(world, f"close {how}")
    world.executor.execute(world.one, ActionRequest("bad", "book", {}))
    world.integrations.replace_integration(world.one, "bad", IntegrationSpec("broken", {"token": "tok-2", "label": f"close {how}"}))
    world.executor.execute(world.one, ActionRequest("bad", "book", {}))
    found = history.list_calls(world.one, "bad", CallFilter(), PageRequest()).items
    assert [(call.status, call.outcome) for call in found] == [("succeeded", "done")] * 2
    assert len(Ledger.booked) == 2
