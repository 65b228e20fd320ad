"""Polls of triggers: policy rules apply as to calls; an obligation that a poll cannot meet refuses it."""

from typing import Any

import pytest

from appliance.connectors.contract import Context, Item, Polled, Rejected
from appliance.core.errors import ApplianceError, BudgetExceeded, PolicyDenied
from appliance.governance import kill_switches
from appliance.governance.executor.polling import PollRequest
from appliance.governance.executor.requests import ActionFailed
from tests.governance.ruling import put_rules
from tests.governance.test_governor import audit_fields
from tests.integrations.world import Ledger, World

ENTRIES = PollRequest("books", "entries", {})


class Book:
    """The new entries of the ledger; counts the polls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Any = None) -> None:
        self.polls = 0
        self.answer = answer or {"n": 1, "deep": {"iban": 89}}
        monkeypatch.setattr(Ledger, "poll", lambda ledger, *args: self.poll(args[-1]))

    def poll(self, ctx: Context) -> Polled:
        self.polls += 1
        ctx.log("info", "the iban is DE89", {"iban": "DE89"})
        if isinstance(self.answer, Exception):
            raise self.answer
        return Polled([Item("1", dict(self.answer))], 1)


def rule(**obligations: Any) -> dict[str, Any]:
    return {"id": "bound", "effect": "allow", "effects": ["read"], "reason": "bound", "obligations": obligations}


def expect_refusal(world: World, kind: type[ApplianceError]) -> ApplianceError:
    with pytest.raises(kind) as caught:
        world.executor.poll(world.one, ENTRIES)
    return caught.value


def test_redacted_members_are_removed_from_events(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.ledger()
    Book(monkeypatch)
    put_rules(world.one, rule(redact=["/deep/iban"]))
    with caplog.at_level("INFO"):
        [item] = world.executor.poll(world.one, ENTRIES).items
    assert item.data == {"n": 1, "deep": {}}
    assert "DE89" not in caplog.text
    assert "a rule hides" in caplog.text


def test_with_a_redact_rule_a_failed_poll_quotes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.ledger()
    Book(monkeypatch, Rejected("the iban DE89 is locked", details={"status": 423, "excerpt": "DE89"}))
    put_rules(world.one, rule(redact=["/deep/iban"]))
    failed = expect_refusal(world, ActionFailed)
    assert "DE89" not in failed.message + str(failed.extra)
    assert failed.extra["foreign"] == {"status": 423}


def test_polls_count_against_the_cap_of_their_rule(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.ledger()
    book = Book(monkeypatch)
    put_rules(world.one, rule(calls_per_hour=2))
    for _ in range(2):
        world.executor.poll(world.one, ENTRIES)
    assert expect_refusal(world, BudgetExceeded).extra["reason"] == "calls_per_hour"
    assert book.polls == 2


@pytest.mark.parametrize(
    ("policy_rule", "reason"),
    [
        (rule(dry_run_first=True), "preview_at_poll"),
        ({**rule(), "obligations": {}, "effect": "require_approval"}, "approval_at_poll"),
    ],
)
def test_an_obligation_that_a_poll_cannot_meet_refuses_it(
    world: World, monkeypatch: pytest.MonkeyPatch, policy_rule: dict[str, Any], reason: str
) -> None:
    world.ledger()
    book = Book(monkeypatch)
    put_rules(world.one, policy_rule)
    error = expect_refusal(world, PolicyDenied)
    assert (error.extra["reason"], error.extra["rules"]) == (reason, ["gate/bound"])
    assert "add a policy rule that allows this trigger" in error.message
    assert book.polls == 0
    assert len(audit_fields(world, "policy.deny") + audit_fields(world, "policy.require_approval")) == 1


def test_an_integration_switched_off_while_a_poll_waits_is_not_polled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.ledger()
    book = Book(monkeypatch)
    gate = world.executor._gate
    run = gate.run

    def run_switched_off(*args: Any) -> Any:
        kill_switches.switch_off(world.one, "integration", "books", "an incident")
        return run(*args)

    monkeypatch.setattr(gate, "run", run_switched_off)
    assert "an incident" in expect_refusal(world, PolicyDenied).message
    assert book.polls == 0
