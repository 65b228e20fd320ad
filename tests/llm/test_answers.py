"""Prompts and answers of a model: text, valid JSON, corrected JSON, and failures."""

from typing import Any

import pytest

from appliance.core.errors import (
    AnswerInvalid,
    AnswerRefused,
    ApplianceError,
    ConnectorFailed,
    NotFound,
    TimedOut,
    ValidationFailed,
)
from appliance.llm.prompt import parse_prompt
from tests.llm.conftest import Desk
from tests.llm.provider import Say

ORDER = {"type": "object", "required": ["total"], "properties": {"total": {"type": "integer"}}, "additionalProperties": False}
KINDS = pytest.mark.parametrize("kind", ["openai", "anthropic"])
PICTURE = "data:image/png;base64,iVBORw0KGgo="


@KINDS
def test_a_prompt_is_answered_with_text(desk: Desk, kind: str) -> None:
    desk.profile(kind=kind, parameters={"temperature": 0.5, "max_tokens": 77, "extra": {"seed": 1}})
    desk.provider.say("Nobody.")
    done = desk.ask("Who?", system="Be brief.")
    assert (done.value, done.error) == ("Nobody.", None)
    request = desk.provider.requests[0]
    body = request.body
    assert (body["model"], body["temperature"], body["max_tokens"], body["seed"]) == ("small", 0.5, 77, 1)
    if kind == "openai":
        assert (request.path, request.headers["authorization"]) == ("/v1/chat/completions", "Bearer sk-canary-123")
        assert request.body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
    else:
        assert (request.path, request.headers["x-api-key"]) == ("/v1/messages", "sk-canary-123")
        assert (request.body["system"], request.texts) == ("Be brief.", ["Who?"])


@KINDS
def test_a_structured_answer_is_requested_natively(desk: Desk, kind: str) -> None:
    desk.profile(kind=kind)
    desk.provider.say({"total": 7})
    assert desk.ask(output=ORDER).value == {"total": 7}
    body = desk.provider.requests[0].body
    if kind == "openai":
        schema = body["response_format"]["json_schema"]
        assert (schema["schema"], schema["strict"]) == (ORDER, True)
    else:
        assert (body["tools"][0]["input_schema"], body["tool_choice"]["type"]) == (ORDER, "tool")


@KINDS
def test_a_schema_of_something_else_than_an_object_is_wrapped(desk: Desk, kind: str) -> None:
    desk.profile(kind=kind)
    desk.provider.say({"answer": ["a", "b"]}, {"answer": ["c"]})
    schema = {"type": "array", "items": {"type": "string"}}
    assert desk.ask(output=schema).value == ["a", "b"]
    assert desk.ask(output=ORDER | {"additionalProperties": True, "required": []}).value == {"answer": ["c"]}


@pytest.mark.parametrize("structured", ["json", "prompt"])
def test_a_server_without_schemas_gets_the_schema_in_the_prompt(desk: Desk, structured: str) -> None:
    desk.profile(structured=structured)
    desk.provider.say('Here you are:\n```json\n{"total": 3}\n```')
    assert desk.ask(output=ORDER).value == {"total": 3}
    body = desk.provider.requests[0].body
    assert '"total":{"type":"integer"}' in body["messages"][0]["content"]
    assert body.get("response_format") == ({"type": "json_object"} if structured == "json" else None)


@KINDS
def test_a_wrong_answer_is_sent_back_with_what_is_wrong(desk: Desk, kind: str) -> None:
    desk.profile(kind=kind)
    desk.provider.say("sorry, no JSON", {"total": "seven"}, {"total": 7})
    done = desk.ask(output=ORDER)
    assert done.value == {"total": 7}
    assert len(desk.provider.requests) == 3
    last = desk.provider.requests[2].texts
    assert "not JSON" in last[-3]
    assert last[-2] == '{"total": "seven"}' or last[-2] == '{"total":"seven"}'
    assert "/total" in last[-1]
    assert [exchange.get("problems") is not None for exchange in done.exchanges] == [True, True, False]
    assert done.used.input_tokens == 300


def test_corrections_are_bounded(desk: Desk) -> None:
    desk.profile()
    desk.provider.say({"total": "x"})
    done = desk.ask(output=ORDER, repair=1)
    assert isinstance(done.error, AnswerInvalid)
    assert "/total" in done.error.message
    assert (len(desk.provider.requests), done.value) == (2, None)
    desk.provider.forget()
    desk.provider.say({"total": "x"})
    desk.ask(output=ORDER, repair=0)
    assert len(desk.provider.requests) == 1


@KINDS
def test_a_refusal_and_a_cut_off_answer_are_errors(desk: Desk, kind: str) -> None:
    desk.profile(kind=kind)
    desk.provider.say(Say("I'd rather not.", finish="content_filter" if kind == "openai" else "refusal"))
    refused = desk.ask().error
    assert isinstance(refused, AnswerRefused)
    assert "rather not" in refused.message
    desk.provider.say(Say('{"tot', finish="length"))
    cut = desk.ask(output=ORDER, max_tokens=5).error
    assert isinstance(cut, AnswerInvalid)
    assert "cut off at 5 tokens" in cut.message
    assert len(desk.provider.requests) == 2, "neither is asked again"


@pytest.mark.parametrize(
    ("say", "error_class", "retryable", "retry_after"),
    [
        (Say(status=429, headers={"Retry-After": "7"}), "rate_limited", True, 7.0),
        (Say(status=429, headers={"retry-after-ms": "1500"}), "rate_limited", True, 1.5),
        (Say(status=429, error={"code": "insufficient_quota"}), "rejected", False, None),
        (Say(status=529), "transient_error", True, None),
        (Say(status=503, headers={"Retry-After": "2"}), "rate_limited", True, 2.0),
        (Say(status=401, error={"message": "bad key sk-canary-123"}), "auth_error", False, None),
        (Say(status=400, error={"message": "no such model"}), "rejected", False, None),
        (Say(status=302, headers={"Location": "http://example.com/"}), "system_error", False, None),
        (Say(raw=b"<html>hello"), "system_error", False, None),
        (Say(raw=b"[" * 100_000), "system_error", False, None),
        (Say(raw=b'{"choices": [{"message": {"content": 5}}]}'), "system_error", False, None),
    ],
)
def test_provider_failures_have_the_error_classes_of_connectors(
    desk: Desk, say: Say, error_class: str, retryable: bool, retry_after: float | None
) -> None:
    desk.profile()
    desk.provider.say(say)
    error = desk.ask().error
    assert isinstance(error, ConnectorFailed)
    extra = error.extra
    assert (extra["error_class"], extra["retryable"], extra.get("retry_after")) == (error_class, retryable, retry_after)
    assert "sk-canary" not in error.message


def test_a_slow_answer_ends_with_the_profiles_timeout(desk: Desk) -> None:
    desk.profile(timeout="300ms")
    desk.provider.say(Say("slowly", slow=True))
    error = desk.ask().error
    assert isinstance(error, ConnectorFailed)
    assert (error.extra["error_class"], error.extra["retryable"]) == ("transient_error", True)


def test_the_callers_deadline_is_a_timeout(desk: Desk) -> None:
    desk.profile()
    desk.provider.say(Say("slowly", slow=True))
    assert isinstance(desk.ask(seconds=0.3).error, TimedOut)


def test_an_internal_address_needs_egress_allow(desk: Desk) -> None:
    desk.profile(base_url="http://127.0.0.1:9/v1")
    error = desk.ask().error
    assert isinstance(error, ApplianceError)
    assert (error.code, "egress.allow" in error.message) == ("address_not_allowed", True)


def test_an_unknown_profile_is_not_found(desk: Desk) -> None:
    with pytest.raises(NotFound, match="POST /api/v1/llm-profiles"):
        desk.ask()


@KINDS
def test_images_are_sent(desk: Desk, kind: str) -> None:
    desk.profile(kind=kind)
    done = desk.ask("What is this?", images=[PICTURE], input={"n": 1})
    content = desk.provider.requests[0].body["messages"][0]["content"]
    picture = content[1]
    assert content[0]["text"] == 'What is this?\n\nInput:\n{"n":1}'
    if kind == "openai":
        assert picture["image_url"]["url"] == PICTURE
    else:
        assert picture["source"] == {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    assert done.exchanges[0]["request"]["messages"][0]["images"] == [{"media_type": "image/png", "bytes": 9}]


def test_a_fallback_profile_answers_after_a_failure(desk: Desk) -> None:
    desk.profile(fallbacks=["gone", "spare"])
    desk.profile("spare", model="large")
    desk.provider.say(Say(status=500), "from the other")
    done = desk.ask()
    assert (done.value, done.error) == ("from the other", None)
    assert [exchange["profile"] for exchange in done.exchanges] == ["default", "spare"]
    desk.provider.say(Say("no", finish="content_filter"))
    assert isinstance(desk.ask().error, AnswerRefused), "a refusal is not shopped around"


@pytest.mark.parametrize(
    ("members", "pointer"),
    [
        ({"prompt": "x", "messages": []}, "/prompt"),
        ({}, "/prompt"),
        ({"prompt": " "}, "/prompt"),
        ({"messages": [{"role": "user", "content": ""}]}, "/messages/0/content"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "/messages/0"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "/messages"),
        ({"prompt": "x", "modle": 1}, "/modle"),
        ({"prompt": "x", "output": {"type": "nothing"}}, "/output"),
        ({"prompt": "x", "output": {"$ref": "http://example.com/s"}}, "/output"),
        ({"prompt": "x", "repair": 6}, "/repair"),
        ({"prompt": "x", "temperature": 3}, "/temperature"),
        ({"prompt": "x", "max_tokens": 0}, "/max_tokens"),
        ({"prompt": "x", "images": ["data:text/plain;base64,eA=="]}, "/images/0"),
        ({"prompt": "x", "images": ["data:image/png;base64,?"]}, "/images/0"),
        ({"prompt": "x", "profile": "Not A Slug"}, "/profile"),
        ({"prompt": "x", "restore": "yes"}, "/restore"),
    ],
)
def test_an_invalid_prompt_is_refused_with_a_pointer(members: dict[str, Any], pointer: str) -> None:
    with pytest.raises(ValidationFailed) as caught:
        parse_prompt({"profile": "default", **members})
    assert caught.value.details[0].pointer == pointer


def test_halves_of_surrogate_pairs_are_replaced(desk: Desk) -> None:
    desk.profile()
    desk.provider.say(Say(raw=b'{"choices": [{"message": {"content": "a\\ud800b"}, "finish_reason": "stop"}]}'))
    assert desk.ask().value == "a?b"
    desk.provider.say('{"total": 1, "note": "\\ud800"}')
    assert desk.ask(output={"type": "object"}).value == {"total": 1, "note": "?"}
