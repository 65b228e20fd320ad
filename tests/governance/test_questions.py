"""Which human requests are valid, and where problems are reported."""

from typing import Any

import pytest

from appliance.core import logs
from appliance.core.errors import ValidationFailed
from appliance.governance.approvals.approvals import HumanRequest, Origin, parse_request
from appliance.governance.approvals.human_requests import check_answer

ORIGIN = Origin("exe_1", "order-intake", "approve", "approve")


def parse(**fields: Any) -> HumanRequest:
    return parse_request({"kind": "approval", "title": "Order over limit", **fields}, ORIGIN, 1_000)


def test_a_request_is_read() -> None:
    fields = {"reason": "r", "details": [1, {"a": None}], "approvers": ["role:owner", "user:Ann@x.test"], "expires": "48h"}
    request = parse(**fields)
    assert (request.reason, request.details, request.origin) == ("r", [1, {"a": None}], ORIGIN)
    assert request.approvers == ("role:owner", "user:ann@x.test")
    assert request.expires_at == 1_000 + 48 * 3_600_000
    assert (parse().expires_at, parse().details, parse().approvers) == (None, None, ())
    assert parse(kind="input").schema == {"type": "string", "minLength": 1}
    assert parse(kind="choice", choices=["a", "b"]).choices == ("a", "b")


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("fields", "pointer"),
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
def test_an_invalid_request_is_refused_with_its_pointer(fields: dict[str, Any], pointer: str) -> None:
    with pytest.raises(ValidationFailed) as caught:
        parse(**fields)
    assert [detail.pointer for detail in caught.value.details] == [pointer]


@pytest.mark.parametrize("value", [None, "approve?", ["approval"], 1])
def test_a_request_is_an_object(value: Any) -> None:
    with pytest.raises(ValidationFailed, match="object"):
        parse_request(value, ORIGIN, 0)


def test_a_property_may_be_named_like_a_keyword() -> None:
    schema = {"type": "object", "properties": {"$ref": {"type": "string"}}}
    request = parse(kind="input", schema=schema)
    assert check_answer(request, {"$ref": "x"}) == {"$ref": "x"}


def test_secrets_are_redacted() -> None:
    logs.remember_secret("hunter2-hunter2")
    request = parse(title="Use hunter2-hunter2?", reason="hunter2-hunter2", details={"key": ["hunter2-hunter2"]})
    assert "hunter2" not in repr(request)
    assert request.details == {"key": ["[redacted]"]}
