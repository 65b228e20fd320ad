"""The `llm` step and `api.llm.generate`: what is asked, recorded and paid, and how it waits for a profile that is not there."""

from collections.abc import Iterator
from typing import Any

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.events import hub
from appliance.core.pages import PageRequest
from appliance.governance.approvals import ApprovalClosed, ApprovalFilter, approvals
from appliance.llm import ProfileCreated, UsageSum
from appliance.processes.executions import service as executions
from appliance.processes.host.model_calls import GENERATE
from appliance.processes.host.vault import redact_answer
from appliance.processes.rehearsal.dry_run import DryRunRequest
from tests.llm.provider import Provider, Say
from tests.processes.deciding import active_rules
from tests.processes.rehearsal.replaying import replay, results
from tests.processes.world import World, code, rule

ORDER = {"type": "object", "required": ["total"], "properties": {"total": {"type": "integer"}}}
PROFILE_GRANT = {"llm": ["default"]}


@pytest.fixture(scope="module", autouse=True)
def listening(flow_world: World) -> Iterator[None]:
    """Profiles wake whoever waits for them, as the appliance wires it."""
    withdraw = hub.subscribe(ProfileCreated, flow_world.flow.answer_profile)
    yield
    withdraw()


@pytest.fixture
def profile(world: World, provider: Provider) -> Iterator[Provider]:
    """The provider behind acme's profile `default`."""
    world.add_profile(provider)
    yield provider
    world.models.delete_profile(world.scope, "default")


def ask(step_id: str = "ask", *, options: dict[str, Any] | None = None, **payload: Any) -> dict[str, Any]:
    return {"id": step_id, "llm": {"profile": "default", **payload}, **(options or {})}


def journal(world: World, execution: Any) -> list[dict[str, Any]]:
    """What is told of the questions of an execution."""
    result = executions.list_journal(world.scope, execution, PageRequest()).items
    return [redact_answer(row.method, bool(row.ok), row.answer) for row in result if row.method == GENERATE]


def used(world: World) -> UsageSum:
    return world.models.get_usage(world.scope, "default").day


def spend(world: World) -> Iterator[UsageSum]:
    """What is used from one question of a test to the next."""
    before = used(world)
    while True:
        now = used(world)
        yield UsageSum(now.calls - before.calls, now.input_tokens - before.input_tokens, now.output_tokens - before.output_tokens)
        before = now


def test_a_step_asks_and_its_answer_is_the_output(world: World, profile: Provider) -> None:
    profile.say("It is Ann.")
    counted = spend(world)
    next(counted)
    question = ask(prompt="Who is {{ steps.name }}?", system="Be brief.", input={"n": "= input.n"})
    done = world.run([rule("name", "= 'Ann'"), question], {"n": 4})
    assert (done.status, done.output) == ("succeeded", "It is Ann.")
    assert profile.requests[0].texts == ["Be brief.", 'Who is Ann?\n\nInput:\n{"n":4}']
    (entry,) = journal(world, done)
    assert entry["usage"] == {"calls": 1, "input_tokens": 100, "output_tokens": 20, "cost": 0.0}
    assert entry["exchanges"][0]["response"] == "It is Ann."
    assert next(counted) == UsageSum(1, 100, 20)
    assert world.steps(done)["ask"].input["prompt"] == "Who is Ann?"


def test_an_answer_fits_its_schema_after_corrections(world: World, profile: Provider) -> None:
    profile.say({"total": "x"}, {"total": 3})
    done = world.run([ask(prompt="?", output=ORDER), rule("twice", "= steps.ask.total * 2")])
    assert done.output == 6
    (entry,) = journal(world, done)
    assert [len(exchange["request"]["messages"]) for exchange in entry["exchanges"]] == [1, 2]
    assert "/total" in entry["exchanges"][0]["problems"][0]


def test_an_answer_that_never_fits_fails_as_validation_with_its_exchanges(world: World, profile: Provider) -> None:
    profile.say({"total": "x"})
    counted = spend(world)
    next(counted)
    done = world.run([ask(prompt="?", output=ORDER, repair=1)])
    assert (done.error["code"], done.error["failure_class"]) == ("answer_invalid", "validation")
    assert len(journal(world, done)[0]["exchanges"]) == 2
    assert next(counted).calls == 2


def test_a_step_that_is_asked_for_patience_is_tried_again_then(world: World, profile: Provider) -> None:
    profile.say(Say(status=429, headers={"Retry-After": "0.4"}), "now")
    retry = {"max_attempts": 2, "initial": "1ms", "classes": ["connector"]}
    started_at = clock.now_ms()
    done = world.run([ask(prompt="?", options={"retry": retry})])
    assert (done.output, world.steps(done)["ask"].attempt) == ("now", 2)
    assert clock.now_ms() - started_at >= 400
    assert [entry.get("code") or entry["exchanges"][0].get("response") for entry in journal(world, done)] == [None, "now"]


@pytest.mark.parametrize(
    ("response", "code", "failure_class"),
    [
        (Say(status=429), "connector_failed", "connector"),
        (Say(status=401), "connector_failed", "connector"),
        (Say("no", finish="content_filter"), "answer_refused", "policy"),
        (Say("no", finish="length"), "answer_invalid", "validation"),
    ],
)
def test_failures_have_their_class(world: World, profile: Provider, response: Say, code: str, failure_class: str) -> None:
    profile.say(response)
    done = world.run([ask(prompt="?")])
    assert (done.error["code"], done.error["failure_class"]) == (code, failure_class)


def test_the_steps_own_time_ends_it(world: World, profile: Provider) -> None:
    profile.say(Say("slowly", slow=True))
    done = world.run([ask(prompt="?", options={"timeout": "300ms"})])
    assert (done.error["code"], done.error["failure_class"]) == ("timed_out", "timeout")


def test_an_execution_whose_models_have_cost_too_much_calls_nothing(world: World, profile: Provider) -> None:
    world.add_profile(profile, price={"input": 10, "output": 10})
    profile.say("yes", "yes")
    frugal = {"id": "frugal", "effect": "allow", "reason": "as long as it is cheap", "obligations": {"cost_per_run": 0.0012}}
    ring = {"id": "ring", "integration": {"use": "bell", "action": "ring", "input": {"n": 1}}}
    with active_rules(world, frugal):  # an answer costs 0.0012
        done = world.run([ring, ask(prompt="?")])
        assert done.status == "succeeded", done.error
        done = world.run([ask(prompt="?"), ring])
        assert done.error is not None
        assert (done.status, done.error["code"], done.error["step"]) == ("failed", "budget_exceeded", "ring"), done.error


def test_a_used_up_budget_is_policy_and_nothing_leaves(world: World, provider: Provider) -> None:
    world.add_profile(provider, "frugal", budgets={"execution": {"tokens": 100}})
    step = {"llm": {"profile": "frugal", "prompt": "?"}}
    done = world.run([{"id": "first", **step}, {"id": "second", **step}])
    assert (done.error["code"], done.error["failure_class"], done.error["step"]) == ("budget_exceeded", "policy", "second")
    assert len(provider.requests) == 1
    assert world.run([{"id": "first", **step}]).status == "succeeded", "another execution has its own"


def test_a_wrong_question_is_a_failure_that_points_at_it(world: World, profile: Provider) -> None:
    done = world.run([ask(prompt="= input.nothing ?? 5")])
    assert (done.error["code"], done.error["failure_class"]) == ("validation_failed", "validation")
    assert done.error["details"][0]["pointer"] == "/prompt"


def test_a_cancelled_execution_does_not_wait_for_the_model(world: World, profile: Provider) -> None:
    profile.say(Say("slowly", slow=True))
    execution = world.start(world.publish([ask(prompt="?")]))
    assert profile.arrivals.acquire(timeout=10)
    world.flow.cancel_execution(world.scope, execution)
    assert world.finish(execution).status == "cancelled"
    assert world.models.get_usage(world.scope, "default").in_flight.calls >= 1, "what it cost is not forgotten"


# -- no profile


def parked(world: World, **payload: Any) -> str:
    """An execution that waits for the profile `absent`."""
    steps = [ask(profile="absent", **payload), rule("said", "= steps.ask")]
    execution = world.start(world.publish(steps))
    world.wait_for_status(execution, "waiting")
    return execution


def test_without_its_profile_a_step_waits_and_goes_on_when_it_is_created(world: World, provider: Provider) -> None:
    execution = parked(world, prompt="Who?")
    row = world.get(execution)
    assert row.wait_reason == "input"
    (wait,) = row.waiting_for["waits"]
    assert (wait["kind"], wait["profile"]) == ("llm_profile", "absent")
    assert "create the LLM profile absent with POST /api/v1/llm-profiles" in wait["next"]
    world.add_profile(provider, "absent")
    try:
        done = world.finish(execution)
    finally:
        world.models.delete_profile(world.scope, "absent")
    assert (done.status, done.output, world.steps(done)["ask"].attempt) == ("succeeded", "hello", 1)
    assert approvals.get_approval(world.scope, wait["approval_id"]).status == "cancelled"
    assert db.rows("SELECT count(*) FROM pending_call WHERE execution_id = ?", (execution,)) == [(0,)]


def test_another_tenants_profile_helps_nobody(world: World, provider: Provider) -> None:
    execution = parked(world, prompt="Who?")
    world.scope, world.other = world.other, world.scope
    try:
        world.add_profile(provider, "absent")
        world.models.delete_profile(world.scope, "absent")
    finally:
        world.scope, world.other = world.other, world.scope
    assert world.get(execution).status == "waiting"
    world.flow.cancel_execution(world.scope, execution)
    (request,) = approvals.list_approvals(world.scope, ApprovalFilter(execution_id=execution), PageRequest()).items
    assert request.status == "cancelled", "nobody is asked for an execution that is over"


def answer(world: World, execution: str, value: Any) -> None:
    """What `approvals.decide_approval` comes to, without a session."""
    (request,) = approvals.list_approvals(world.scope, ApprovalFilter(execution_id=execution), PageRequest()).items
    changes = "status = 'answered', answer = ?, decided_by = 'user:u', decided_login = 'ann', closed_at = ?"
    values = (db.dump_json(value), clock.now_ms(), request.id)

    def decide() -> None:
        db.execute(f"UPDATE approval SET {changes} WHERE id = ?", values)  # noqa: S608 our own names
        world.flow.answer_approval(ApprovalClosed(world.scope, approvals.get_approval(world.scope, request.id)))

    db.write(decide)


def test_a_person_may_answer_in_place_of_the_model(world: World) -> None:
    execution = parked(world, prompt="What is the total?", system="Read well.", input={"n": 1}, output=ORDER)
    (approval,) = approvals.list_approvals(world.scope, ApprovalFilter(execution_id=execution), PageRequest()).items
    request = approval.request
    assert (request.kind, request.schema, request.title) == ("input", ORDER, "Answer in place of the LLM profile absent")
    assert request.details["question"] == 'Read well.\n\nWhat is the total?\n\nInput: {"n":1}'
    answer(world, execution, {"total": 8})
    assert world.finish(execution).output == {"total": 8}


def test_a_question_too_large_for_a_person_waits_all_the_same(world: World, provider: Provider) -> None:
    execution = parked(world, prompt="?", output={"$defs": {"a": {"type": "string"}}, "$ref": "#/$defs/a"})
    (wait,) = world.get(execution).waiting_for["waits"]
    assert "approval_id" not in wait
    provider.say({"answer": "yes"})
    world.add_profile(provider, "absent")
    try:
        assert world.finish(execution).output == "yes"
    finally:
        world.models.delete_profile(world.scope, "absent")


def test_nobody_waits_for_a_profile_for_ever(world: World) -> None:
    execution = parked(world, prompt="?")

    def let_time_pass() -> None:
        db.execute("UPDATE pending_call SET due_at = 0 WHERE execution_id = ?", (execution,))
        db.execute("UPDATE step_run SET next_run_at = 0 WHERE execution_id = ? AND status = 'waiting'", (execution,))
        db.execute("UPDATE execution SET next_run_at = 0 WHERE id = ?", (execution,))

    db.write(let_time_pass)
    done = world.finish(execution)
    assert (done.error["code"], done.error["failure_class"]) == ("wait_timed_out", "timeout")
    assert "absent" in done.error["message"]


# -- code


def test_code_is_answered_and_the_journal_has_the_exchange_but_neither_question_nor_value(world: World, provider: Provider) -> None:
    redaction = {"patterns": [{"use": "email"}], "restore": True}
    world.add_profile(provider, "discreet", redaction=redaction)
    provider.say({"to": "[EMAIL_1]"})
    body = "return await api.llm.generate({profile: 'discreet', prompt: 'To ' + input.mail, output: {type: 'object'}});"
    process = world.publish([code("a", body)], grants={"llm": ["discreet"]})
    done = world.finish(world.start(process, {"mail": "ann@example.com"}))
    assert done.output == {"to": "ann@example.com"}
    rows = db.rows("SELECT args, answer FROM journal WHERE execution_id = ?", (done.id,))
    assert "ann@example.com" not in str(rows)
    assert "To [EMAIL_1]" in str(rows)
    assert "sealed" not in str(journal(world, done))
    assert results(replay(world, done)) == {"a": "identical"}
    assert len(provider.requests) == 1, "a replay asks nobody"


def test_code_catches_what_a_model_fails_with_and_a_replay_gives_it_again(world: World, profile: Provider) -> None:
    profile.say(Say(status=429, headers={"Retry-After": "5"}))
    body = "try { return await api.llm.generate({profile: 'default', prompt: '?'}) }"
    body += " catch (e: any) { return [e.code, e.retryable, Object.keys(e).includes('exchanges')] }"
    done = world.run([code("a", body)], grants=PROFILE_GRANT)
    assert done.output == ["connector_failed", True, False]
    assert journal(world, done)[0]["exchanges"][0]["error"]["code"] == "connector_failed"
    assert results(replay(world, done)) == {"a": "identical"}


def test_code_that_does_not_catch_it_is_tried_again_when_the_model_asked(world: World, profile: Provider) -> None:
    profile.say(Say(status=429, headers={"Retry-After": "0.4"}), "now")
    retry = {"max_attempts": 2, "initial": "1ms", "classes": ["connector", "user_code"]}
    step = code("a", "return await api.llm.generate({profile: 'default', prompt: '?'});", retry=retry)
    started_at = clock.now_ms()
    done = world.run([step], grants=PROFILE_GRANT)
    assert (done.output, clock.now_ms() - started_at >= 400) == ("now", True), done.error


def test_questions_of_code_are_asked_side_by_side(world: World, profile: Provider) -> None:
    body = "return await Promise.all(['a', 'b', 'c'].map(prompt => api.llm.generate({profile: 'default', prompt})));"
    done = world.run([code("a", body)], grants=PROFILE_GRANT)
    assert done.output == ["hello"] * 3
    assert len(journal(world, done)) == 3


def test_a_replay_of_steps_asks_nobody_and_notices_another_question(world: World, profile: Provider) -> None:
    process = world.publish([ask(prompt="Who is {{ input.name }}?")])
    done = world.finish(world.start(process, {"name": "Ann"}))
    assert results(replay(world, done)) == {"ask": "identical"}
    world.save(process, [ask(prompt="And who is {{ input.name }}?")])
    assert results(replay(world, done, draft=True)) == {"ask": "diverged"}
    assert len(profile.requests) == 1


def test_a_kept_answer_is_not_asked_for_again(world: World, profile: Provider) -> None:
    process = world.publish([ask(prompt="{{ input.q }}", options={"cache": {"ttl": "1h"}})])
    first, second = (world.finish(world.start(process, {"q": "same"})) for _ in range(2))
    assert (first.output, second.output, len(profile.requests)) == ("hello", "hello", 1)
    assert world.steps(second)["ask"].result_source == "cached"


def test_a_test_asks_no_model(world: World, provider: Provider) -> None:
    body = "return await api.llm.generate({profile: 'absent', prompt: '?'});"
    steps = [ask(profile="absent", prompt="?"), code("a", body), rule("b", "= [steps.ask, steps.a]")]
    process = world.publish(steps, grants={"llm": ["absent"]})
    test_run = world.flow.test_process(world.scope, process, DryRunRequest())
    assert (test_run.status, test_run.output) == ("succeeded", [None, None])
    mocks = {"llm.generate/absent": {"outputs": ["one", "two"]}}
    test_run = world.flow.test_process(world.scope, process, DryRunRequest(mocks=mocks))
    assert (test_run.output, test_run.unused_mocks) == (["one", "two"], [])
    assert provider.requests == []


def test_a_retry_plan_says_that_the_model_is_asked_again(world: World, profile: Provider) -> None:
    body = "await api.llm.generate({profile: 'default', prompt: '?'}); throw new Error('later');"
    done = world.run([ask(prompt="?"), code("a", body)], grants=PROFILE_GRANT)
    plan = world.flow.plan_retry(world.scope, done.id, start_from="start")
    sentences = [effect.sentence for effect in plan.effects]
    assert sentences == [f"{step} would ask the model of default again, which costs again." for step in ("ask", "a")]
