"""One text and one digest for one action, and none of them for another."""

import dataclasses
import hashlib
import json
import random
import sys
from typing import Any

import pytest

from appliance.core.errors import ValidationFailed
from appliance.core.scope import TenantScope
from appliance.governance.actions import action_label, canonical_action, find_changes, read_action, summarize_action
from appliance.governance.policies.decision import ToolAction
from appliance.governance.subjects import SkillUsed, Subject

SCOPE = TenantScope("one", "key:k1")
SUBJECT = Subject("key:k1", "mcp", "clerk", "run_1", (SkillUsed("orders", "d1"), SkillUsed("billing", "d2")))
ACTION = ToolAction(
    "execute_tenant_integration", "write", {"sku": "A", "quantity": 3}, "erp", "create_order", "http 1.2",
    "erp.example:443", "cred_1",
)  # fmt: skip


def digest_of(scope: TenantScope = SCOPE, subject: Subject = SUBJECT, action: ToolAction = ACTION, version: str = "p1") -> str:
    return canonical_action(scope, subject, action, version).digest


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same to the bit, types included; NaN is itself."""
    if isinstance(one, float) and isinstance(other, float):
        return one.hex() == other.hex()
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


EDGES: list[Any] = [
    0, 1, -1, 2**53 - 1, 2**53, -(2**53), 2**53 + 1, 10**400, -(10**400), 0.0, -0.0, 1.0, -1.0, 0.5, 1e-7, 1e-6, 5e-324, 1e21,
    1e300, 1.7976931348623157e308, float("nan"), float("inf"), float("-inf"), 0.1 + 0.2, 9007199254740993.0,
    True, False, None, "", "1",
    "gos:int:1", "gos:", "gos:text:gos:int:1", "gos:float:1.0",
    "\ud800", "\ud83d\ude00", "\U0001f600", "\x00", "a\u202eb", "é", "e\u0301",
    "true", "null", [], {}, [[]], [{}], {"": ""}, {"gos:int:1": 1},
    {"1": 1}, {"\ud800": 1}, [1, [2]], [[1], 2],
]  # fmt: skip


def make(rng: random.Random, depth: int = 0) -> Any:
    """A value as JSON might hold it, often one of those that are easily taken for another."""
    kind = rng.random()
    if kind < 0.25 and depth < 4:
        return {str(make_text(rng)): make(rng, depth + 1) for _ in range(rng.randrange(4))}
    if kind < 0.4 and depth < 4:
        return [make(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind < 0.7:
        return rng.choice(EDGES)
    if kind < 0.8:
        return rng.randrange(-(2**70), 2**70)
    return rng.uniform(-1, 1) * 10.0 ** rng.randrange(-30, 30) if kind < 0.9 else make_text(rng)


def make_text(rng: random.Random) -> str:
    return "".join(rng.choice(["a", "gos:", "é", "\ud800", "\U0001f600", "\n", ":", "1"]) for _ in range(rng.randrange(4)))


def test_generated_inputs_round_trip_and_have_distinct_digests() -> None:
    rng = random.Random(7)  # noqa: S311  the same dice each time
    seen: dict[str, Any] = {}
    inputs = [{"value": value} for value in EDGES] + [{"value": make(rng)} for _ in range(3000)]
    for value_input in inputs:
        action = dataclasses.replace(ACTION, input=value_input)
        canonical = canonical_action(SCOPE, SUBJECT, action, "p1")
        assert canonical.digest == hashlib.sha256(canonical.text.encode()).hexdigest()
        subject, read, version = read_action(canonical.text)
        assert same(read.input, value_input), value_input
        assert canonical_action(SCOPE, subject, read, version) == canonical
        assert same(seen.setdefault(canonical.digest, value_input), value_input)
    assert len(seen) > 1000


def test_the_order_of_members_and_of_skills_makes_no_difference() -> None:
    reordered = dataclasses.replace(ACTION, input={"quantity": 3, "sku": "A"})
    assert digest_of(action=reordered) == digest_of()
    assert digest_of(subject=dataclasses.replace(SUBJECT, skills=SUBJECT.skills[::-1])) == digest_of()
    assert digest_of(action=dataclasses.replace(ACTION, input={"l": (1, 2)})) == digest_of(
        action=dataclasses.replace(ACTION, input={"l": [1, 2]})
    )


def test_the_entry_point_and_taint_do_not_change_the_digest() -> None:
    other = dataclasses.replace(SUBJECT, via="rest", tainted_by=("mailbox",))
    assert digest_of(subject=other) == digest_of()


CHANGES: dict[str, dict[str, Any]] = {
    "tenant": {"scope": TenantScope("two", "key:k1")},
    "policy": {"version": "p2"},
    "actor": {"subject": dataclasses.replace(SUBJECT, actor="key:k2")},
    "agent": {"subject": dataclasses.replace(SUBJECT, agent="other")},
    "run": {"subject": dataclasses.replace(SUBJECT, run_id="run_2")},
    "skills": {"subject": dataclasses.replace(SUBJECT, skills=(SkillUsed("orders", "d1"), SkillUsed("billing", "d3")))},
    "tool": {"action": dataclasses.replace(ACTION, tool="write_entities")},
    "effect": {"action": dataclasses.replace(ACTION, effect="read")},
    "integration": {"action": dataclasses.replace(ACTION, integration="crm")},
    "operation": {"action": dataclasses.replace(ACTION, operation="delete_order")},
    "connector": {"action": dataclasses.replace(ACTION, connector="http 1.3")},
    "host": {"action": dataclasses.replace(ACTION, host="evil.example:443")},
    "credential": {"action": dataclasses.replace(ACTION, credential="cred_2")},
    "input": {"action": dataclasses.replace(ACTION, input={"sku": "A", "quantity": 4})},
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_changes_the_digest_and_is_named(name: str) -> None:
    before = canonical_action(SCOPE, SUBJECT, ACTION, "p1")
    arguments: dict[str, Any] = {"scope": SCOPE, "subject": SUBJECT, "action": ACTION, "version": "p1"} | CHANGES[name]
    after = canonical_action(**arguments)
    assert after.digest != before.digest
    assert find_changes(before.text, after.text) == [name]


def test_every_member_of_an_action_is_part_of_its_text() -> None:
    content = json.loads(canonical_action(SCOPE, SUBJECT, ACTION, "p1").text)
    assert content.keys() == {*CHANGES, "form"}
    # `sent` follows from input and settings (`credential` names their version); `kin` changes what judges, not what is done.
    assert {field.name for field in dataclasses.fields(ToolAction)} - {"sent", "kin"} <= content.keys()
    assert content["skills"] == [["billing", "d2"], ["orders", "d1"]]


def test_an_input_that_is_not_json_is_refused() -> None:
    deep: Any = []
    for _ in range(sys.getrecursionlimit()):
        deep = [deep]
    for invalid in ({"a": b"x"}, {"a": {1: 2}}, {"a": {1, 2}}, {"a": object()}, {"a": deep}):
        with pytest.raises(ValidationFailed):
            digest_of(action=dataclasses.replace(ACTION, input=invalid))


def test_a_summary_shows_the_action_and_escapes_its_content() -> None:
    assert action_label(ACTION) == "create_order of erp"
    summary = summarize_action(ACTION)
    assert summary == 'create_order of erp (http 1.2) at erp.example:443, which writes: sku = "A", quantity = 3'
    misleading = {"note": "\u202eevil\n\x1b[2Jpay 0", "long": "x" * 500} | {f"m{n}": n for n in range(20)}
    summary = summarize_action(dataclasses.replace(ACTION, input=misleading))
    assert summary.isprintable()
    assert "\\u202eevil" in summary
    assert "x" * 100 not in summary
    assert summary.endswith("and 10 more")
    assert summarize_action(ToolAction("publish_webapp", "write", {})) == "publish_webapp, which writes: no input"
