"""What may be asked of a person, and what is refused where it is given."""

from typing import Any

import pytest

from appliance.core import logs
from appliance.core.errors import ValidationFailed
from appliance.governance.approvals.approvals import HumanRequest, Origin, parse_request
from appliance.governance.approvals.human_requests import check_answer

HERE = Origin("exe_1", "order-intake", "approve", "approve")


def parse(**given: Any) -> HumanRequest:
    return parse_request({"kind": "approval", "title": "Order over limit", **given}, HERE, 1_000)


def test_a_request_is_read() -> None:
    given = {"reason": "r", "details": [1, {"a": None}], "approvers": ["role:owner", "user:Ann@x.test"], "expires": "48h"}
    asked = parse(**given)
    assert (asked.reason, asked.details, asked.origin) == ("r", [1, {"a": None}], HERE)
    assert asked.approvers == ("role:owner", "user:ann@x.test")
    assert asked.expires_at == 1_000 + 48 * 3_600_000
    assert (parse().expires_at, parse().details, parse().approvers) == (None, None, ())
    assert parse(kind="input").schema == {"type": "string", "minLength": 1}
    assert parse(kind="choice", choices=["a", "b"]).choices == ("a", "b")


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"kind": "order"}, "/kind"),
        ({"kind": ["approval"]}, "/kind"),
        ({"colour": "red"}, "/colour"),
        ({"title": ""}, "/title"),
        ({"title": "two\nlines"}, "/title"),
        ({"title": "x" * 201}, "/title"),
        ({"title": 5}, "/title"),
        ({"reason": "x" * 4_001}, "/reason"),
        ({"details": "x" * (64 << 10)}, "/details"),
        ({"details": float("inf")}, "/details"),
        ({"details": "\ud800"}, "/details"),
        ({"details": nested(13)}, "/details"),
        ({"schema": {}}, "/schema"),
        ({"choices": ["a"]}, "/choices"),
        ({"kind": "choice"}, "/choices"),
        ({"kind": "choice", "choices": []}, "/choices"),
        ({"kind": "choice", "choices": ["a", "a"]}, "/choices"),
        ({"kind": "choice", "choices": ["a", ""]}, "/choices/1"),
        ({"kind": "choice", "choices": ["a", 1]}, "/choices"),
        ({"kind": "choice", "choices": [str(n) for n in range(51)]}, "/choices"),
        ({"kind": "input", "schema": []}, "/schema"),
        ({"kind": "input", "schema": {"type": "colour"}}, "/schema"),
        ({"kind": "input", "schema": {"pattern": "(?=a)"}}, "/schema"),
        ({"kind": "input", "schema": {"description": "x" * (32 << 10)}}, "/schema"),
        ({"kind": "input", "schema": {"properties": {"a": {"$ref": "#"}}}}, "/schema"),
        ({"kind": "input", "schema": {"allOf": [{"$dynamicRef": "#a"}]}}, "/schema"),
        ({"approvers": "role:owner"}, "/approvers"),
        ({"approvers": ["role:emperor"]}, "/approvers/0"),
        ({"approvers": ["role:owner", "ann"]}, "/approvers/1"),
        ({"approvers": ["role:owner"] * 51}, "/approvers"),
        ({"expires": "soon"}, "/expires"),
        ({"expires": "500ms"}, "/expires"),
        ({"expires": "91d"}, "/expires"),
        ({"expires": 48}, "/expires"),
    ],
)
def test_what_cannot_be_asked_is_refused_where_it_is(given: dict[str, Any], pointer: str) -> None:
    with pytest.raises(ValidationFailed) as caught:
        parse(**given)
    assert [detail.pointer for detail in caught.value.details] == [pointer]


@pytest.mark.parametrize("given", [None, "approve?", ["approval"], 1])
def test_a_request_is_an_object(given: Any) -> None:
    with pytest.raises(ValidationFailed, match="object"):
        parse_request(given, HERE, 0)


def test_a_member_may_be_called_like_a_keyword() -> None:
    schema = {"type": "object", "properties": {"$ref": {"type": "string"}}}
    asked = parse(kind="input", schema=schema)
    assert check_answer(asked, {"$ref": "x"}) == {"$ref": "x"}


def test_secrets_are_not_shown() -> None:
    logs.remember_secret("hunter2-hunter2")
    asked = parse(title="Use hunter2-hunter2?", reason="hunter2-hunter2", details={"key": ["hunter2-hunter2"]})
    assert "hunter2" not in repr(asked)
    assert asked.details == {"key": ["[redacted]"]}
