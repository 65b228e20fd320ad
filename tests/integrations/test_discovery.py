"""Discovered actions: discovered when due, stored, searched, and called like declared ones."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest

from appliance.connectors.contract import Action, Context, Json, TransientError
from appliance.connectors.registry import Installed, Registry
from appliance.core.errors import InvalidCursor, InvalidRequest, NotFound, PolicyDenied, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.governance import kill_switches
from appliance.governance.executor import ActionFailed, ActionRequest
from appliance.integrations.spec import IntegrationSpec
from tests.governance.ruling import DENY_WRITES, put_rules
from tests.integrations.world import Ledger, World

NUMBER = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}


def offer(name: str, **more: Any) -> Action:
    return Action(name, more.pop("summary", f"Do {name}"), NUMBER, {}, more.pop("effect", "write"), {"n": 1}, more)


class Finder(Ledger):
    """A ledger that also discovers actions: it returns `offers`, or raises it when it is an error."""

    name = "finder"
    offers: ClassVar[Any] = ()
    discoveries: ClassVar[list[Any]] = []
    wait: ClassVar[threading.Event | None] = None
    performed: ClassVar[list[tuple[Json, Json]]] = []

    def discover(self, ctx: Context) -> Sequence[Action]:
        Finder.discoveries.append(self.settings)
        if Finder.wait is not None:
            Finder.wait.wait(20)
        if isinstance(Finder.offers, Exception):
            raise Finder.offers
        offers: Sequence[Action] = Finder.offers
        return offers

    def perform(self, action: Action, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        if not action.plan:
            return super().perform(action, input, ctx)
        Finder.performed.append((action.plan, input))
        return {"performed": action.name}


@pytest.fixture
def finder(world: World) -> World:
    Finder.offers = (offer("ship", path="/ship"), offer("weigh", path="/w"))
    Finder.discoveries, Finder.wait, Finder.performed = [], None, []
    world.integrations.registry = Registry({**world.integrations.registry.installed, "finder": Installed(Finder, "test")})
    spec = IntegrationSpec("finder", {"token": "tok-4711-secret"})
    for scope in (world.one, world.two):
        world.integrations.create_integration(scope, "depot", spec)
    return world


def execute(world: World, action: str, params: Any = None) -> Any:
    return world.executor.execute(world.one, ActionRequest("depot", action, {"n": 1} if params is None else params)).output


def names(world: World, words: str = "", **page: Any) -> list[str]:
    return [each.name for each in world.integrations.search_actions(world.one, "depot", words, PageRequest(**page)).items]


def test_a_discovered_action_is_performed_by_its_plan_and_discovered_once(finder: World) -> None:
    assert execute(finder, "ship", {"n": 7}) == {"performed": "ship"}
    assert execute(finder, "weigh") == {"performed": "weigh"}
    assert Finder.performed == [({"path": "/ship"}, {"n": 7}), ({"path": "/w"}, {"n": 1})]
    assert len(Finder.discoveries) == 1


def test_a_declared_action_needs_no_discovery(finder: World) -> None:
    assert execute(finder, "look", {}) == {"n": 1}
    assert Finder.discoveries == []


def test_the_input_is_validated_and_an_unknown_action_is_refused(finder: World) -> None:
    with pytest.raises(ValidationFailed) as caught:
        execute(finder, "ship", {"n": "seven"})
    assert [each.pointer for each in caught.value.details] == ["/input/n"]
    with pytest.raises(ValidationFailed, match="no action 'sink'; it has book, look, set, ship, weigh"):
        execute(finder, "sink")
    assert Finder.performed == []


def test_changed_settings_are_discovered_again_but_a_changed_secret_is_not(finder: World) -> None:
    execute(finder, "ship")
    finder.integrations.replace_integration(finder.one, "depot", IntegrationSpec("finder", {"token": "tok-4712-secret"}))
    execute(finder, "ship")
    assert len(Finder.discoveries) == 1
    finder.integrations.replace_integration(
        finder.one, "depot", IntegrationSpec("finder", {"token": "tok-4712-secret", "label": "new"})
    )
    Finder.offers = (offer("weigh", path="/new"),)
    with pytest.raises(ValidationFailed, match="no action 'ship'"):
        execute(finder, "ship")
    execute(finder, "weigh")
    assert (len(Finder.discoveries), Finder.performed[-1][0]) == (2, {"path": "/new"})


def test_testing_the_settings_discovers_again(finder: World) -> None:
    execute(finder, "ship")
    Finder.offers = (offer("weigh", path="/w"),)
    check = finder.integrations.test_integration(finder.one, "depot")
    assert check.ok
    assert check.message.endswith("It offers 4 actions.")
    assert names(finder) == ["book", "look", "set", "weigh"]


def test_a_failed_discovery_keeps_the_known_actions(finder: World) -> None:
    execute(finder, "ship")
    Finder.offers = TransientError("The depot sleeps.")
    check = finder.integrations.test_integration(finder.one, "depot")
    assert (check.ok, check.message, check.error_class) == (False, "The depot sleeps.", "transient_error")
    assert execute(finder, "ship") == {"performed": "ship"}


def test_a_call_whose_discovery_fails_was_not_sent_and_may_be_repeated(finder: World) -> None:
    Finder.offers = TransientError("The depot sleeps.")
    with pytest.raises(ActionFailed) as caught:
        execute(finder, "ship")
    assert (caught.value.error_class, caught.value.outcome, caught.value.retryable) == ("transient_error", "not_done", True)


def test_many_calls_at_once_make_one_discovery(finder: World) -> None:
    Finder.wait = threading.Event()
    with ThreadPoolExecutor(8) as threads:
        calls = [threads.submit(execute, finder, "ship") for _ in range(8)]
        Finder.wait.set()
        assert [call.result(30) for call in calls] == [{"performed": "ship"}] * 8
    assert len(Finder.discoveries) == 1


def test_actions_discovered_with_outdated_settings_are_not_stored(finder: World) -> None:
    Finder.wait = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(execute, finder, "ship")
        while not Finder.discoveries:
            threading.Event().wait(0.01)
        finder.integrations.replace_integration(
            finder.one, "depot", IntegrationSpec("finder", {"token": "tok-4711-secret", "label": "x"})
        )
        Finder.wait.set()
        with pytest.raises(ActionFailed, match="changed while its actions were discovered"):
            call.result(30)
    assert finder.integrations.find_actions(finder.one, "depot") is None


def test_actions_are_unknown_before_discovery_and_to_other_tenants(finder: World) -> None:
    assert finder.integrations.find_actions(finder.one, "depot") is None
    execute(finder, "ship")
    actions = finder.integrations.find_actions(finder.one, "depot")
    assert actions is not None
    assert sorted(actions) == ["book", "look", "set", "ship", "weigh"]
    assert (actions["ship"].input, actions["look"].effect, len(actions)) == (NUMBER, "read", 5)
    assert finder.integrations.find_actions(finder.two, "depot") is None
    with pytest.raises(NotFound):
        finder.integrations.get_action(finder.two, "depot", "ship")


def test_actions_are_deleted_with_their_integration(finder: World) -> None:
    execute(finder, "ship")
    finder.integrations.delete_integration(finder.one, "depot")
    finder.integrations.create_integration(finder.one, "depot", IntegrationSpec("finder", {"token": "tok-4711-secret"}))
    assert finder.integrations.find_actions(finder.one, "depot") is None


@pytest.mark.parametrize(
    ("offers", "sentence"),
    [
        ([offer("ship"), offer("ship")], "distinct names"),
        ([offer("Ship")], "lower-case"),
        ([offer("s" * 121)], "too long"),
        ([offer("look")], "declares as well"),
        ([offer("ship", effect="boom")], "the effect 'boom'"),
        ([Action("ship", "", {"type": "nonsense"}, {}, "read")], "input schema of action ship is not usable"),
        ([Action("ship", "", {}, {"$ref": "http://127.0.0.1:1/s.json"}, "read")], "output schema of action ship is not usable"),
        ([offer(f"a{n}") for n in range(5001)], "5000 are the most"),
        ("nothing of the kind", "failed with an internal error"),
    ],
)
def test_unusable_actions_fail_the_whole_discovery(finder: World, offers: Any, sentence: str) -> None:
    Finder.offers = offers
    check = finder.integrations.test_integration(finder.one, "depot")
    assert (check.ok, check.error_class) == (False, "system_error")
    assert sentence in check.message
    assert finder.integrations.find_actions(finder.one, "depot") is None


def test_secrets_in_discovered_actions_are_redacted(finder: World) -> None:
    Finder.offers = (offer("ship", summary="Ship with tok-4711-secret", path="/a?key=tok-4711-secret", half="\ud800"),)
    finder.integrations.test_integration(finder.one, "depot")
    stored = finder.integrations.get_action(finder.one, "depot", "ship")
    assert (stored.summary, stored.plan) == ("Ship with [redacted]", {"path": "/a?key=[redacted]", "half": "?"})


def test_actions_are_searched_by_words_and_paged(finder: World) -> None:
    Finder.offers = [offer(f"order_{n:03}", summary="Order things" if n % 2 else "Look up an ORDER") for n in range(120)]
    finder.integrations.test_integration(finder.one, "depot")
    assert names(finder, "order look") == [f"order_{n:03}" for n in range(0, 120, 2)][:50]
    assert names(finder, "order_11 things") == [f"order_{n}" for n in (111, 113, 115, 117, 119)]
    assert names(finder, "nowhere") == []
    seen: list[str] = []
    cursor = None
    while True:
        page = finder.integrations.search_actions(finder.one, "depot", "", PageRequest(50, cursor, count=True))
        seen += [each.name for each in page.items]
        cursor = page.next_cursor
        assert page.total == 123
        if cursor is None:
            break
    assert seen == sorted({"book", "look", "set", *(f"order_{n:03}" for n in range(120))})
    with pytest.raises(InvalidRequest):
        names(finder, limit=501)
    with pytest.raises(InvalidCursor):
        names(finder, cursor="bm90IG9uZQ")


def denied(world: World, how: str, action: str) -> PolicyDenied:
    request = ActionRequest("depot", action, {"n": 1})
    with pytest.raises(PolicyDenied) as caught:
        world.executor.describe_action(world.one, request) if how == "asked for" else world.executor.execute(world.one, request)
    return caught.value


@pytest.mark.parametrize("how", ["asked for", "called"])
def test_a_denied_action_triggers_no_discovery(finder: World, how: str) -> None:
    put_rules(finder.one, DENY_WRITES)
    error = denied(finder, how, "ship")
    assert (error.extra["rules"], Finder.discoveries) == (["gate/no-writes"], [])
    assert "not known yet" in error.message
    assert "test the integration" in error.message


def test_a_known_action_is_evaluated_by_its_previous_effect(finder: World) -> None:
    Finder.offers = (offer("ship", path="/ship"), offer("count", effect="read", path="/c"))
    assert execute(finder, "count") == {"performed": "count"}
    finder.integrations.replace_integration(
        finder.one, "depot", IntegrationSpec("finder", {"token": "tok-4711-secret", "label": "moved"})
    )
    put_rules(finder.one, DENY_WRITES)
    discoveries = len(Finder.discoveries)
    assert "not known yet" not in denied(finder, "called", "ship").message
    assert len(Finder.discoveries) == discoveries
    assert execute(finder, "count") == {"performed": "count"}
    assert len(Finder.discoveries) == discoveries + 1


def test_a_kill_switch_set_while_discovery_waits_prevents_it(
    finder: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finder.executor._gate.run

    def late(*args: Any) -> Any:
        kill_switches.switch_off(finder.one, "integration", "depot", "an incident")
        return run(*args)

    monkeypatch.setattr(finder.executor._gate, "run", late)
    assert "an incident" in denied(finder, "called", "ship").message
    assert Finder.discoveries == []
