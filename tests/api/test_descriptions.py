"""Every member, parameter and operation of the OpenAPI document is described, and no description only repeats a name."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from appliance.api.frame.docs import contract

Described = tuple[str, str, str]  # where it is, its name, its description

# Words that say nothing about a value beside its name.
EMPTY = {
    "a", "an", "and", "at", "by", "for", "in", "is", "it", "its", "of", "on", "or", "that", "the", "this", "to", "value", "was",
}  # fmt: skip
LONGEST_SUMMARY = 8


def words(text: str) -> set[str]:
    """The words of a name or a sentence, without plural and without those that say nothing."""
    parts = re.findall(r"[a-z0-9]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower())
    return {part.removesuffix("s") for part in parts} - {each.removesuffix("s") for each in EMPTY}


def is_repetition(name: str, description: str) -> bool:
    return words(description) <= words(name)


def members_of(schema: Any, where: str) -> Iterator[Described]:
    """Every member of a schema and of the schemas inside it."""
    if isinstance(schema, dict):
        properties = schema.get("properties")
        for name, member in (properties if isinstance(properties, dict) else {}).items():
            yield where, name, member.get("description") or referred(member).get("description", "")
            yield from members_of(member, f"{where}.{name}")
        for keyword, inner in schema.items():
            if keyword not in ("properties", "example"):
                yield from members_of(inner, where)
    elif isinstance(schema, list):
        for inner in schema:
            yield from members_of(inner, where)


def referred(part: dict[str, Any]) -> dict[str, Any]:
    """The component that a reference names; what is no reference, itself."""
    if "$ref" not in part:
        return part
    _, _, kind, name = part["$ref"].split("/")
    component: dict[str, Any] = contract()["components"][kind][name]
    return component


def operations() -> Iterator[dict[str, Any]]:
    for methods in contract()["paths"].values():
        yield from methods.values()


def every_member() -> Iterator[Described]:
    for name, schema in contract()["components"]["schemas"].items():
        yield from members_of(schema, name)
    for operation in operations():
        for part in ("requestBody", "responses"):
            yield from members_of(operation.get(part, {}), f"{operation['operationId']} {part}")


def every_parameter() -> Iterator[Described]:
    for operation in operations():
        for parameter in map(referred, operation["parameters"]):
            yield f"{operation['operationId']} {parameter['in']}", parameter["name"], parameter.get("description", "")


def test_every_member_is_described() -> None:
    assert [f"{where}.{name}" for where, name, description in every_member() if not description] == []


def test_every_parameter_is_described() -> None:
    assert [f"{where} {name}" for where, name, description in every_parameter() if not description] == []


def test_no_description_only_repeats_the_name() -> None:
    described = [*every_member(), *every_parameter()]
    assert [f"{where}.{name}: {text}" for where, name, text in described if text and is_repetition(name, text)] == []


def test_every_operation_is_described_beyond_its_summary_and_scope() -> None:
    texts = {each["operationId"]: re.sub(r"Needs the scope `[a-z._]+`\.$", "", each["description"]) for each in operations()}
    assert [name for name, text in texts.items() if len(words(text) - words(name)) < 4] == []


def test_every_summary_is_short() -> None:
    summaries = [(each["operationId"], each["summary"]) for each in operations()]
    assert [f"{name}: {text}" for name, text in summaries if len(text.split()) > LONGEST_SUMMARY] == []


@pytest.mark.parametrize(
    ("name", "description"),
    [("id", "The id."), ("created_at", "Created at"), ("share_id", "Id of the share."), ("rateLimits", "Rate limit."), ("x", "…")],
)
def test_a_repetition_is_recognized(name: str, description: str) -> None:
    assert is_repetition(name, description)


@pytest.mark.parametrize(
    ("name", "description"),
    [("id", "Identifies the document; `doc_…`."), ("size", "In bytes."), ("url", "Where anyone can open it.")],
)
def test_a_description_is_no_repetition(name: str, description: str) -> None:
    assert not is_repetition(name, description)
