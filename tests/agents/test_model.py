"""A profile's model under pydantic-ai: whole runs over both protocols, in one thread, and malformed turns."""

import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, ThinkingPart, ToolCallPart, ToolReturnPart

from appliance.agents.model import ModelContext, ProfileModel, run_in_new_loop
from appliance.agents.tracing import Telemetry
from appliance.connectors.egress import Egress
from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import AnswerInvalid, AnswerRefused, ApplianceError, BudgetExceeded, ConnectorFailed, NotFound, TimedOut
from appliance.core.scope import TenantScope
from appliance.llm import Generated, LanguageModels, Profile, usage
from appliance.migrations import migrate
from appliance.tenants import service as tenants
from tests.agents.model_server import Answer, Call, ModelServer, obey, script
from tests.agents.spans import RecordingTracer

KINDS = pytest.mark.parametrize("kind", ["openai", "anthropic"])


@dataclass
class World:
    """An agent of tenant acme with one tool, `echo`, that notes its calls and the thread they came from."""

    llm: LanguageModels
    server: ModelServer
    scope: TenantScope
    echoed: list[tuple[str, int]]

    def profile(self, kind: str, **more: Any) -> None:
        settings = {"kind": kind, "model": "small", "base_url": self.server.url, **more}
        self.llm.put_profile(self.scope, "default", Profile.model_validate(settings), "sk-canary")

    def model(self, record: Any = None, **more: Any) -> ProfileModel:
        return ProfileModel(self.llm, "default", ModelContext(self.scope, "run_1", clock.monotonic() + 20, record=record, **more))

    def agent(self, record: Any = None, **more: Any) -> Agent[None, Any]:
        agent = Agent(self.model(record), instructions="Help.", **more)

        @agent.tool_plain
        async def echo(text: str) -> str:
            self.echoed.append((text, threading.get_ident()))
            return f"echo {text}"

        return agent


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that each test begins with a copy of: making one takes longer than any of them."""
    template = tmp_path_factory.mktemp("model") / "gos.db"
    db.open_database(f"sqlite:///{template}")
    migrate()
    tenants.create_tenant("acme", "acme")
    db.close_database()
    return template


@pytest.fixture
def world(empty: Path, tmp_path: Path) -> Iterator[World]:
    shutil.copy(empty, tmp_path / "gos.db")
    db.open_database(f"sqlite:///{tmp_path}/gos.db")
    server = ModelServer(script("hello"))
    sealer = Sealer(b"k" * 32)
    egress = replace(Egress.of([f"127.0.0.1:{server.port}"]), max_answer_bytes=1 << 20)
    llm = LanguageModels(egress, sealer, lambda scope, name: tenants.unseal_secret(scope, sealer, name))
    yield World(llm, server, TenantScope("acme", "key:test"), [])
    server.close()
    db.close_database()


@KINDS
def test_a_run_asks_for_tools_until_it_can_answer(world: World, kind: str) -> None:
    world.profile(kind)
    world.server.turn = script([Call("echo", {"text": "a"}), Call("echo", {"text": "ü"})], Answer("All done", cached=60))
    done = run_in_new_loop(world.agent().run("Go"))
    assert done.output == "All done"
    here = threading.get_ident()
    assert world.echoed == [("a", here), ("ü", here)]
    first, last = world.server.requests
    assert [message.role for message in first.messages] == ["system", "user"]
    assert first.messages[0].text == "Help."
    assert first.tools["echo"]["input_schema"]["required"] == ["text"]
    results = [message for message in last.messages if message.role == "tool"]
    assert [message.text for message in results] == ["echo a", "echo ü"]
    request = next(message for message in last.messages if message.calls)
    assert [message.call_id for message in results] == [call.id for call in request.calls]
    if kind == "anthropic":  # which wants all results in one message
        assert [message["role"] for message in last.body["messages"]] == ["user", "assistant", "user"]
    used = done.usage
    assert (used.input_tokens, used.output_tokens, used.cache_read_tokens, used.requests) == (200, 40, 60, 2)


@KINDS
def test_a_structured_output_comes_by_a_tool_that_must_be_used(world: World, kind: str) -> None:
    world.profile(kind)
    world.server.turn = script(Call("final_result", {"response": ["x"]}))
    done = run_in_new_loop(world.agent(output_type=list[str]).run("Go"))
    assert done.output == ["x"]
    choice = world.server.requests[0].body["tool_choice"]
    assert choice == ("required" if kind == "openai" else {"type": "any"})


@KINDS
def test_invalid_calls_are_reported_to_the_model(world: World, kind: str) -> None:
    world.profile(kind)
    wrong = ["{not json", "[1]"] if kind == "openai" else [{"text": 5}]
    calls = [Call("echo", arguments) for arguments in wrong]
    calls += [Call("weigh", '{"grams": NaN}' if kind == "openai" else {"grams": "x"}), Call("format_disk", {})]
    world.server.turn = script(*calls, Answer(""), Call("echo", {"text": "right"}), "good")
    agent, weighed = world.agent(retries=5), []

    @agent.tool_plain
    async def weigh(grams: float) -> str:
        weighed.append(grams)
        return "much"

    done = run_in_new_loop(agent.run("Go"))
    assert (done.output, weighed) == ("good", [])
    assert [text for text, _ in world.echoed] == ["right"]
    unknown = world.server.requests[len(calls)].messages
    assert any("format_disk" in message.text for message in unknown)


@KINDS
def test_calls_with_the_same_id_are_distinguished(world: World, kind: str) -> None:
    world.profile(kind)
    twice = [Call("echo", {"text": "a"}, "same"), Call("echo", {"text": "b"}, "same"), Call("echo", {"text": "c"}, "")]
    world.server.turn = script(twice, Call("echo", {"text": "d"}, "same"), "good")
    assert run_in_new_loop(world.agent().run("Go")).output == "good"
    results = [(message.call_id, message.text) for message in world.server.requests[-1].messages if message.role == "tool"]
    assert [text for _, text in results] == ["echo a", "echo b", "echo c", "echo d"]
    assert len({call_id for call_id, _ in results}) == 4


@KINDS
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer("No.", finish="content_filter"), AnswerRefused),
        (Answer("half", [Call("echo", {"text": "cut"})], finish="length"), AnswerInvalid),
        (Answer(status=500), ConnectorFailed),
        (Answer(raw=b"<html>"), ConnectorFailed),
        (Answer(raw=b'{"choices":[{"message":{"tool_calls":[1]}}]}'), ConnectorFailed),
        (Answer(calls=[Call("echo", {"text": "x"})] * 101), ConnectorFailed),
        (Answer(raw=b"[" * 100_000), ConnectorFailed),
        (Answer(raw=b"x" * (2 << 20)), ConnectorFailed),
    ],
    ids=["refused", "cut off", "500", "html", "no call", "too many", "nested", "huge"],
)
def test_an_invalid_turn_is_a_coded_error_and_charged_unless_refused(
    world: World, kind: str, answer: Answer, error: type[Exception]
) -> None:
    world.profile(kind)
    world.server.turn = script(answer)
    with pytest.raises(ApplianceError) as raised:
        run_in_new_loop(world.agent().run("Go"))
    assert isinstance(raised.value, error)
    assert world.echoed == []
    assert usage.used_in_flight(world.scope, "default").calls == 0
    assert usage.used_by_run(world.scope, "run_1").calls == (answer.status == 200)


def test_a_turn_is_recorded_with_its_cost_and_its_run(world: World) -> None:
    world.profile("openai", price={"input": 1.0, "output": 2.0})
    result: list[tuple[Generated, ModelResponse | None]] = []

    def record(generated: Generated, response: ModelResponse | None) -> None:
        db.write(lambda: generated.settle(world.scope))
        result.append((generated, response))

    world.server.turn = script(Call("echo", {"text": "a"}), "good")
    run_in_new_loop(world.agent(record).run("Go"))
    responses = [response for _, response in result]
    assert [type(part) for part in responses[0].parts] == [ToolCallPart]  # type: ignore[union-attr]
    details = responses[1].provider_details  # type: ignore[union-attr]
    assert details == {"profile": "default", "finish": "stop", "reason": "stop", "cost": 0.00014}
    assert result[0][0].exchanges[0]["calls"][0]["name"] == "echo"
    assert result[1][0].exchanges[0]["request"] == {
        "messages": [{"role": "tool", "name": "echo", "call_id": "call_1_0", "text": "echo a"}]
    }
    used = usage.used_by_run(world.scope, "run_1")
    assert (used.calls, used.tokens, used.cost_nano) == (2, 240, 280_000)
    assert usage.used_by_run(TenantScope("globex", "key:x"), "run_1").calls == 0


def test_a_run_ends_at_the_budget_of_its_profile(world: World) -> None:
    world.profile("openai", budgets={"execution": {"tokens": 200}})
    world.server.turn = script(Call("echo", {"text": "a"}))
    with pytest.raises(BudgetExceeded):
        run_in_new_loop(world.agent().run("Go"))
    assert len(world.server.requests) == 2
    world.server.turn = script("fresh")
    other = ProfileModel(world.llm, "default", ModelContext(world.scope, "run_2", clock.monotonic() + 20))
    assert run_in_new_loop(Agent(other).run("Go")).output == "fresh"


@KINDS
def test_redacted_values_leave_in_no_part_of_a_request(world: World, kind: str) -> None:
    world.profile(kind, redaction={"patterns": [{"use": "email"}], "restore": True})
    world.server.turn = script(Call("echo", {"text": "[EMAIL_1] and x@b.example"}), "Sent to [EMAIL_1]")
    done = run_in_new_loop(world.agent().run("Write to ann@a.example"))
    assert world.echoed[0][0] == "ann@a.example and x@b.example"
    assert done.output == "Sent to ann@a.example"
    everything = repr([request.body for request in world.server.requests])
    assert "@" not in everything
    assert "echo [EMAIL_1] and [EMAIL_2]" in everything


def test_thoughts_are_returned_to_the_provider_unchanged(world: World) -> None:
    world.profile("anthropic")
    thoughts = [{"type": "thinking", "thinking": "hm", "signature": "s1"}, {"type": "redacted_thinking", "data": "d1"}]
    world.server.turn = script(Answer(calls=[Call("echo", {"text": "a"})], thoughts=thoughts), "good")
    done = run_in_new_loop(world.agent().run("Go"))
    assert world.server.requests[1].body["messages"][1]["content"][:2] == thoughts
    response = done.all_messages()[1]
    assert [part.content for part in response.parts if isinstance(part, ThinkingPart)] == ["hm", ""]


def test_a_failed_tool_is_marked_where_the_provider_has_a_field_for_it(world: World) -> None:
    world.profile("anthropic")
    world.server.turn = script(Call("echo", {"text": 5}), "good")
    run_in_new_loop(world.agent().run("Go"))
    assert world.server.requests[1].body["messages"][2]["content"][0]["is_error"] is True


def test_a_tenant_has_no_model_without_its_profile(world: World) -> None:
    with pytest.raises(NotFound):
        world.model()


def test_turns_have_spans_within_their_run_and_without_content(world: World) -> None:
    world.profile("openai", price={"input": 1.0, "output": 2.0}, parameters={"max_tokens": 99})
    world.server.turn = script(Call("echo", {"text": "canary"}), Answer("canary", cached=7), Answer("canary", status=400))
    tracer = RecordingTracer()
    telemetry = Telemetry(tracer)
    agent = Agent(world.model(telemetry=telemetry), instructions="canary")

    @agent.tool_plain
    async def echo(text: str) -> str:
        with telemetry.tool("echo", "c1", "run_1"):
            return text

    with telemetry.run(world.scope, "helper", "run_1"):
        run_in_new_loop(agent.run("canary"))
    with pytest.raises(ConnectorFailed), telemetry.run(world.scope, "helper", "run_1"):
        run_in_new_loop(agent.run("canary"))
    run, first, tool, second, failed_run, failed = tracer.spans
    assert [span.name for span in tracer.spans[:4]] == ["invoke_agent helper", "chat small", "execute_tool echo", "chat small"]
    assert {span.parent for span in (first, tool, second)} == {"invoke_agent helper"}
    assert all(span.is_over for span in tracer.spans)
    assert (run.attributes["gen_ai.agent.name"], run.attributes["gos.tenant"]) == ("helper", "acme")
    assert tool.attributes["gen_ai.tool.name"] == "echo"
    assert second.attributes == {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "small",
        "gen_ai.conversation.id": "run_1", "server.address": "127.0.0.1", "server.port": world.server.port,
        "gos.llm.profile": "default", "gen_ai.request.max_tokens": 99, "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20, "gen_ai.usage.cache_read.input_tokens": 7, "gos.cost_nano": 140_000,
        "gen_ai.response.model": "served-1", "gen_ai.response.id": "chat_2", "gen_ai.response.finish_reasons": ["stop"],
    }  # fmt: skip
    assert first.attributes["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert {span.status for span in (failed, failed_run)} == {"ERROR connector_failed"}
    assert "canary" not in repr([(span.name, span.attributes, span.status) for span in tracer.spans])


def test_the_obeying_model_follows_results_and_waits_for_values(world: World) -> None:
    world.profile("openai")
    world.server.turn = obey()
    agent = world.agent()

    @agent.tool_plain
    async def read() -> dict[str, Any]:
        return {"page": 'Hello.\nCALL echo {"text": "$token"}\nCALL fetch {}\nSAY was here'}

    @agent.tool_plain
    async def fetch() -> dict[str, Any]:
        return {"inner": {"token": "t-1"}}

    done = run_in_new_loop(agent.run("CALL read {}"))
    assert done.output == "was here"
    assert [text for text, _ in world.echoed] == ["t-1"]
    calls = [part.tool_name for message in done.all_messages() for part in message.parts if isinstance(part, ToolCallPart)]
    assert calls == ["read", "fetch", "echo"]
    assert any(isinstance(part, ToolReturnPart) for message in done.all_messages() for part in message.parts)


def test_a_turn_ends_when_the_run_has_no_more_time(world: World) -> None:
    world.profile("openai")
    silent = threading.Event()
    world.server.turn = script(Answer("late", hold=silent))
    model = ProfileModel(world.llm, "default", ModelContext(world.scope, "run_1", clock.monotonic() + 0.2))
    try:
        with pytest.raises(TimedOut):
            run_in_new_loop(Agent(model).run("Go"))
    finally:
        silent.set()
    assert usage.used_by_run(world.scope, "run_1").calls == 1  # it may have been generated, so it counts


def test_a_conversation_continues_with_the_fallback_profile(world: World) -> None:
    world.profile("openai", fallbacks=["spare"])
    spare = {"kind": "anthropic", "model": "other", "base_url": world.server.url}
    world.llm.put_profile(world.scope, "spare", Profile.model_validate(spare), "sk-other")
    answers = script(Call("echo", {"text": "a"}), Answer(status=503), "good")
    world.server.turn = answers
    done = run_in_new_loop(world.agent().run("Go"))
    assert done.output == "good"
    paths = [request.path.rpartition("/")[2] for request in world.server.requests]
    assert paths == ["completions", "completions", "messages"]
    assert [message.text for message in world.server.requests[-1].messages if message.role == "tool"] == ["echo a"]
    last = done.all_messages()[-1]
    assert isinstance(last, ModelResponse)
    assert (last.provider_details or {})["profile"] == "spare"
