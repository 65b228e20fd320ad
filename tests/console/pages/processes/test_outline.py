"""Process definitions are described as lists of sentences."""

from dataclasses import asdict
from typing import Any

import pytest

from appliance.console.pages.govern.confirmations import VIEWS, permission_lines
from appliance.console.pages.processes.outline import build_outline
from appliance.tenants.grants import Confirmation, SecretDestination, build_access_spec


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        ({"rule": {"expression": "= input.total * 2"}}, "Compute input.total * 2"),
        ({"rule": {"decision": "rules/order.json"}}, "Decide with rules/order.json"),
        ({"rule": {"decision": {"nodes": []}}}, "Decide with a table"),
        ({"file": {"operation": "parse", "format": "csv", "to": {"collection": "orders"}}}, "Read CSV into orders"),
        ({"file": {"operation": "parse", "as": "document"}}, "Read a document into a document"),
        ({"file": {"operation": "convert", "format": "pdf"}}, "Convert to PDF"),
        ({"ocr": {"document": "= input.d"}}, "Recognise text in a scan"),
        ({"code": {"language": "typescript", "file": "steps/a.ts"}}, "Run steps/a.ts (TypeScript)"),
        ({"code": {"language": "javascript", "source": "…"}}, "Run JavaScript"),
        ({"integration": {"use": "erp", "action": "create"}}, "Call create of erp"),
        ({"datapool": {"collection": "orders", "upsert": {}}}, "Create or update an entity in orders"),
        ({"datapool": {"batch": []}}, "Change several entities at once"),
        ({"wait": {"for": "10m"}}, "Wait for 10m"),
        ({"wait": {"until": "= input.at"}}, "Wait until input.at"),
        ({"for_each": {"items": "= input.lines", "as": "line", "concurrency": 4}}, "For each line of input.lines, 4 at a time"),
        ({"wait": {"event": "paid", "timeout": "2d"}}, "Wait up to 2d for the event paid"),
        ({"wait": {"event": "= input.name"}}, "Wait for the event input.name"),
        ({"human": {"kind": "approval", "title": "Ship?"}}, "Ask for approval: Ship?"),
        ({"human": {"kind": "input", "title": "Where to?"}}, "Ask a person: Where to?"),
        ({"llm": {"profile": "default", "prompt": "?"}}, "Ask the model of default"),
        ({"process": {"use": "invoice"}}, "Run invoice and wait for the result"),
        ({"process": {"use": "invoice", "wait": False}}, "Start invoice"),
        ({"parallel": {"a": [], "b": []}}, "Run 2 branches in parallel"),
        ({"stop": {}}, "End the execution here"),
        ({"branch": []}, "Take the first branch that applies"),
        ({}, "Unreadable step. Validate the draft."),
        ({"code": "nonsense"}, "Run code"),
    ],
)
def test_a_step_is_a_sentence(step: dict[str, Any], sentence: str) -> None:
    assert build_outline({"steps": [{"id": "a", **step}]})[0].text == sentence


def test_inner_steps_are_grouped_with_their_condition() -> None:
    branch = [{"when": "= steps.a > 1", "steps": [{"id": "b", "wait": {}}]}, {"steps": [{"id": "c", "wait": {}}]}]
    (line,) = build_outline({"steps": [{"id": "choose", "branch": branch, "when": "= input.go", "retry": {"max_attempts": 3}}]})
    assert [(group.title, [inner.id for inner in group.steps]) for group in line.groups] == [
        ("when steps.a > 1", ["b"]),
        ("otherwise", ["c"]),
    ]
    assert (line.when, line.retries) == ("input.go", 2)


def test_parallel_branches_are_grouped_by_name() -> None:
    (line,) = build_outline(
        {"steps": [{"id": "p", "parallel": {"left": [{"id": "b", "stop": {}}], "right": [{"id": "c", "wait": {}}]}}]}
    )
    assert [(group.title, [inner.id for inner in group.steps]) for group in line.groups] == [("left", ["b"]), ("right", ["c"])]


@pytest.mark.parametrize("definition", [{}, {"steps": None}, {"steps": "x"}, {"steps": ["x", 1]}])
def test_a_draft_that_cannot_be_read_has_no_steps(definition: dict[str, Any]) -> None:
    assert build_outline(definition) == []


def test_permissions_are_described_with_excessive_ones_first() -> None:
    data, called = {"orders": {"write", "read"}}, {"erp": {"*"}}
    access = build_access_spec({"integrations": called, "datapool": data, "secrets": {"token"}, "human": True})
    lines = [(line.text, line.exceeds) for line in permission_lines(access, ["secrets.write"])]
    assert lines == [
        ("read the secret token", True), ("read the collection orders", False), ("change the collection orders", False),
        ("ask people", False), ("call every action of the integration erp", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "why"), [("wider", "may not decide where secrets go"), ("departed", "Who set it up is unknown")]
)
def test_the_confirmation_of_a_secret_names_its_destination(reason: str, why: str) -> None:
    place = SecretDestination("integration", "erp", "digest", "erp.example.com, login.example.com")
    details = {"secret": "token", **asdict(place), "author": "key:k", "reason": reason, "why": "A sentence."}
    row = Confirmation("cnf_1", "secret", "token", "d", details, "system", 1, None, "open", None, None)
    view = VIEWS["secret"](row, "system")
    assert (view.title, view.url) == ("Use of the secret token", "/console/secrets/token")
    assert [line.text for line in view.lines] == ["by the integration erp", "sent to erp.example.com, login.example.com"]
    assert why in view.why


def test_the_confirmation_of_a_secret_names_webhooks_of_a_process() -> None:
    details = {"secret": "token", **asdict(SecretDestination("webhook", "orders")), "author": "key:k", "reason": "wider"}
    row = Confirmation("cnf_1", "secret", "token", "d", details, "system", 1, None, "open", None, None)
    assert [line.text for line in VIEWS["secret"](row, "system").lines] == ["by the webhooks of the process orders"]
