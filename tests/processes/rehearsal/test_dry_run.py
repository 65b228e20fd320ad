"""A test of a draft, a version or one step: what it comes to, what it would have done, and that nothing of it stays."""

from dataclasses import replace
from typing import Any

import pytest

from appliance.core.errors import ConcurrencyLimited, DefinitionInvalid, NotFound, TimedOut, ValidationFailed
from appliance.processes.definitions.versions import Draft, PublishRequest, save_draft
from appliance.processes.rehearsal.dry_run import DryCall, DryRun, DryRunRequest
from tests.processes.world import Bell, World, code, rule

from .replaying import digests

MARK = {"id": "mark", "datapool": {"collection": "marks", "create": {"values": {"what": "= input.what ?? 'none'"}}}}
RING = {"id": "ring", "integration": {"use": "bell", "action": "ring", "input": {"n": 1}}}
LOOK = {"id": "look", "integration": {"use": "bell", "action": "look", "input": {"n": 2}}}
ASK = {"id": "ask", "human": {"kind": "approval", "title": "May it ring?", "on_timeout": "fail"}}
EVENT = {"id": "event", "wait": {"event": "payment-received"}}
MORE_GRANTS = {"datapool": {"marks": ["read", "write"]}, "integrations": {"bell": "*"}, "human": True, "secrets": ["key"]}


def dry(world: World, steps: list[dict[str, Any]], payload: Any = None, *, draft: Any = None, **request: Any) -> DryRun:
    """Test a draft of these steps, and see that nothing was written and the bell not rung."""
    process_id = f"d{next(world.numbers)}"
    world.save(process_id, steps, **(draft or {}))
    return try_out(world, process_id, payload, **request)


def try_out(world: World, process_id: str, payload: Any = None, **request: Any) -> DryRun:
    before = digests()
    test_run = world.flow.test_process(world.scope, process_id, DryRunRequest(payload or {}, **request))
    assert (digests(), Bell.rung) == (before, []), "a test has no effect"
    return test_run


def by_step(test_run: DryRun) -> dict[str, Any]:
    return {f"{s.run.path}@{s.run.iteration}" if s.run.iteration else s.run.path: s.run for s in test_run.steps}


def describe_calls(calls: list[DryCall]) -> list[tuple[str, str, str]]:
    return [(call.step, call.method, call.answered_by) for call in calls]


def test_a_draft_runs_without_any_effect(world: World) -> None:
    pause = {"id": "pause", "wait": {"for": "10d"}}
    end = rule("end", "= [steps.mark.what, steps.ring, steps.ask.status]")
    test_run = dry(world, [MARK, RING, pause, ASK, EVENT, end], {"what": "a"})
    assert (test_run.status, test_run.version, test_run.output) == ("succeeded", "draft", ["a", None, "approved"])
    assert {run.result_source for name, run in by_step(test_run).items() if name != "end"} == {"mocked"}
    assert by_step(test_run)["end"].result_source == "executed"
    assert describe_calls(test_run.effects) == [
        ("mark", "datapool.create", "default"), ("ring", "integrations.execute", "default"), ("pause", "wait.until", "default"),
        ("ask", "human.request", "default"), ("event", "events.wait", "default"),
    ]  # fmt: skip
    assert test_run.effects[0].args == ["marks", {"what": "a"}]
    assert test_run.effects[1].args == ["bell", "ring", {"n": 1}]
    assert test_run.effects[0].answer["id"].startswith("ent_"), "a write is answered as it would be"
    assert world.marks() == []


def test_mocks_stand_for_steps_and_calls(world: World) -> None:
    body = """
    const seen = await api.integrations.execute('bell', 'ring', {n: 5});
    const again = await api.integrations.execute('bell', 'ring', {n: 6});
    const marks = await api.datapool.query('marks', {});
    const key = await api.secrets.get('key');
    const failed = await api.datapool.create('marks', {what: 'x'}).catch((e: any) => e.code);
    const asked = await api.human.request({kind: 'choice', title: 'Which?', choices: ['a', 'b']});
    return {seen, again, marks: marks.items, key, failed, answer: asked.answer};
    """
    mocks = {
        "ring": {"output": {"rung": 7}},
        "integrations.execute/bell/ring": {"outputs": [{"first": True}, {"second": True}]},
        "a": {"calls": {"datapool.query/marks": {"output": {"items": [1]}}, "human.request": {"output": {"answer": "b"}}}},
        "datapool.create": {"error": {"code": "no_room", "message": "It is full."}},
    }
    test_run = dry(world, [RING, code("a", body)], draft={"grants": MORE_GRANTS}, mocks=mocks)
    assert test_run.status == "succeeded", test_run.error
    assert test_run.output == {
        "seen": {"first": True}, "again": {"second": True}, "marks": [1], "key": "[the secret key]", "failed": "no_room",
        "answer": "b",
    }  # fmt: skip
    assert by_step(test_run)["ring"].output == {"rung": 7}
    assert (by_step(test_run)["ring"].result_source, by_step(test_run)["a"].result_source) == ("mocked", "executed")
    assert [call.answered_by for call in test_run.calls] == ["mock", "mock", "mock", "default", "mock", "mock"]
    assert test_run.unused_mocks == []


def test_a_mock_may_fail_a_step_and_a_person_may_refuse_or_not_answer(world: World) -> None:
    failures = {"ring": {"error": {"code": "bell_broken", "message": "It is cracked.", "failure_class": "connector"}}}
    test_run = dry(world, [RING, rule("end", "= 1")], mocks=failures)
    assert test_run.error is not None
    assert (test_run.status, test_run.error["code"], test_run.error["step"]) == ("failed", "bell_broken", "ring")
    assert [s.run.path for s in test_run.steps] == ["ring"]
    refused = dry(world, [ASK, rule("end", "= steps.ask.status")], mocks={"human.request": {"output": {"status": "rejected"}}})
    assert refused.output == "rejected"
    expired = dry(world, [ASK], mocks={"human.request": {"output": {"status": "expired"}}})
    assert expired.error is not None
    assert expired.error["code"] == "approval_expired", "`on_timeout: fail` is as it would be"


def test_reads_are_made_and_the_writes_of_a_test_are_seen_by_its_own_calls(world: World) -> None:
    world.run([MARK], {"what": "real"})
    body = """
    const before = await api.datapool.query('marks', {});
    const made = await api.datapool.create('marks', {what: 'dry'});
    const changed = await api.datapool.update('marks', made.id, {note: 'more'});
    const found = await api.datapool.find('marks', made.id);
    const real = await api.datapool.update('marks', before.items[0].id, {note: 'touched'});
    const again = await api.datapool.find('marks', before.items[0].id);
    await api.datapool.delete('marks', made.id);
    return [before.items.length, changed.note, found.note, real.note, again.note, await api.datapool.find('marks', made.id)];
    """
    test_run = dry(world, [code("a", body)])
    assert test_run.output == [1, "more", "more", "touched", "touched", None], test_run.error
    assert world.marks() == [("real", None)]


def test_an_action_that_only_reads_is_called(world: World) -> None:
    process_id = f"d{next(world.numbers)}"
    world.save(process_id, [LOOK, RING])
    test_run = world.flow.test_process(world.scope, process_id, DryRunRequest())
    assert [entry for _, entry in Bell.rung] == [{"n": 2}], "looked, not rung"
    assert by_step(test_run)["look"].output == {"rung": {"n": 2}}
    assert [(call.effect, call.answered_by) for call in test_run.calls] == [("read", "live"), ("write", "default")]
    assert [call.step for call in test_run.effects] == ["ring"]


def test_a_dry_run_refuses_what_an_execution_would_refuse(world: World) -> None:
    wrong = {"id": "mark", "datapool": {"collection": "marks", "create": {"values": {"colour": "red"}}}}
    test_run = dry(world, [wrong])
    assert (test_run.status, (test_run.error or {})["failure_class"]) == ("failed", "validation")
    unknown = dry(world, [{"id": "ring", "integration": {"use": "gong", "action": "ring", "input": {}}}])
    assert (unknown.error or {})["code"] == "not_found"
    calls = """
    const c = (work: any) => work.catch((e: any) => e.code);
    return [await c(api.datapool.create('marks', {})), await c(api.integrations.execute('bell', 'ring', {})),
      await c(api.secrets.get('key')), await c(api.human.request({kind: 'approval', title: 'x'})),
      await c(api.processes.execute('p', {}))];
    """
    assert dry(world, [code("a", calls)], draft={"grants": {}}).output == ["policy_denied"] * 5


def test_code_that_fails_tells_position_and_log(world: World) -> None:
    test_run = dry(world, [code("a", "api.log.info('here', {n: 1});\nthrow new Error('broken')")])
    assert test_run.error is not None
    assert (test_run.error["message"], test_run.error["position"]["line"], test_run.error["step"]) == ("broken", 3, "a")
    assert [(line.level, line.message) for line in test_run.steps[0].logs] == [("info", "here")]


def test_the_mock_of_a_step_is_for_tests_only(world: World) -> None:
    mocked = {**rule("a", "= 1"), "mock": {"output": {"n": "= input.n + 1"}}}
    process_id = world.publish([mocked, rule("b", "= steps.a")])
    test_run = try_out(world, process_id, {"n": 1})
    assert (test_run.output, by_step(test_run)["a"].result_source) == ({"n": 2}, "mocked")
    assert try_out(world, process_id, {"n": 1}, mocks={"a": {"output": 9}}).output == 9
    assert world.finish(world.start(process_id, {"n": 1})).output == 1


def test_one_step_gets_its_context(world: World) -> None:
    twice = [rule("twice", "= line.n * 2 + index"), rule("more", "= steps.twice + 1")]
    each = {"items": "= input.lines", "as": "line", "steps": twice}
    inner = [{"id": "lines", "for_each": each}]
    steps = [
        rule("first", "= input.a"), {"id": "both", "parallel": {"one": inner, "two": [rule("other", "= 1 / 0")]}},
        {"id": "choose", "branch": [{"when": "= steps.first > 99", "steps": [rule("big", "= steps.first + 1")]}]},
    ]  # fmt: skip
    assert dry(world, steps, step="big", context_steps={"first": 5}).output == 6
    more = dry(world, steps, step="both/lines/more", context_steps={"twice": 8}, context_items={"line": {"n": 4}})
    assert (more.output, list(by_step(more))) == (9, ["both/lines/more@0"])
    lines = dry(world, steps, {"lines": [{"n": 1}, {"n": 2}]}, step="lines")
    assert (lines.output, len(lines.steps)) == ([3, 6], 5)
    with pytest.raises(ValidationFailed, match=r"context: \{items: \{line: …\}\}"):
        dry(world, steps, step="twice")
    with pytest.raises(ValidationFailed, match="no step 'none'"):
        dry(world, steps, step="none")


def test_blocks_stops_and_skipped_steps(world: World) -> None:
    each = {"items": [1, 2, 3], "steps": [{**MARK, "when": "= item != 2"}], "collect": "= steps.mark?.what ?? 'none'"}
    halt = {"id": "halt", "stop": {"output": "= steps.each"}}
    test_run = dry(world, [{"id": "each", "for_each": each}, halt, RING], {"what": "w"})
    assert (test_run.status, test_run.output) == ("succeeded", ["w", "none", "w"])
    assert by_step(test_run)["each/mark@1"].status == "skipped"
    assert by_step(test_run)["each"].status == "succeeded"
    assert "ring" not in by_step(test_run)


def test_a_child_is_looked_at_and_not_started(world: World) -> None:
    schema = {"type": "object", "required": ["n"]}
    child = world.publish([rule("a", "= input.n")], input=schema)
    step = {"id": "sub", "process": {"use": child, "input": {"n": 1}}}
    test_run = dry(world, [step])
    assert (test_run.status, test_run.output, test_run.effects[0].args) == ("succeeded", None, [child, {"n": 1}, {"wait": True}])
    assert dry(world, [step], mocks={f"processes.execute/{child}": {"output": 4}}).output == 4
    wrong = {"id": "sub", "process": {"use": child, "input": {}}}
    assert (dry(world, [wrong]).error or {})["code"] == "validation_failed"
    absent = {"id": "sub", "process": {"use": "not-there", "input": {}, "wait": False}}
    assert (dry(world, [absent]).error or {})["code"] == "not_found"
    assert dry(world, [absent], mocks={"processes.execute": {"output": {"execution_id": "x"}}}).output == {"execution_id": "x"}


def test_pinned_outputs_are_context_and_answer_what_reaches_outside(world: World) -> None:
    steps = [rule("a", "= 1"), RING, rule("b", "= [steps.a, steps.ring]")]
    pinned = {"a": 5, "ring": {"rung": "then"}}
    assert dry(world, steps, pinned=pinned).output == [1, {"rung": "then"}], "what only computes is computed"
    assert dry(world, steps, pinned=pinned, step="b").output == [5, {"rung": "then"}]
    assert dry(world, steps, pinned=pinned, step="b", context_steps={"a": 7}).output == [7, {"rung": "then"}]
    assert dry(world, steps, pinned=pinned, mocks={"ring": {"output": 0}}).output == [1, 0]


@pytest.mark.parametrize(
    ("mocks", "pointer"),
    [
        ({"none": {"output": 1}}, "/mocks/none"),
        ({"ring": {}}, "/mocks/ring"),
        ({"ring": {"output": 1, "error": {}}}, "/mocks/ring"),
        ({"ring": {"outputs": []}}, "/mocks/ring/outputs"),
        ({"ring": {"error": {"colour": 1}}}, "/mocks/ring/error"),
        ({"ring": {"error": {"failure_class": "none"}}}, "/mocks/ring/error/failure_class"),
        ({"ring": {"error": {"message": 1}}}, "/mocks/ring/error/message"),
        ({"ring": {"error": {"retryable": 1}}}, "/mocks/ring/error/retryable"),
        ({"ring": {"calls": 1}}, "/mocks/ring/calls"),
        ({"ring": {"calls": {"a.b/c": 1}}}, "/mocks/ring/calls/a.b~1c"),
        ({f"a.b{n}": {"output": 1} for n in range(501)}, "/mocks"),
    ],
)
def test_a_wrong_mock_is_pointed_at(world: World, mocks: Any, pointer: str) -> None:
    with pytest.raises(ValidationFailed) as caught:
        dry(world, [RING], mocks=mocks)
    assert caught.value.details[0].pointer == pointer


def test_unused_mocks_are_named(world: World) -> None:
    mocks = {"ring": {"output": 1}, "datapool.create/marks": {"output": 1}, "b": {"calls": {"x.y": {"output": 1}}}}
    assert dry(world, [RING, rule("b", "= 1")], mocks=mocks).unused_mocks == ["b/calls/x.y", "datapool.create/marks"]


def test_a_process_that_cannot_be_tested_is_refused_with_a_reason(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    process_id = world.publish([rule("a", "= input.n")], input={"type": "object", "required": ["n"]})
    with pytest.raises(ValidationFailed, match="does not match"):
        try_out(world, process_id)
    assert try_out(world, process_id, {"n": 3}, version=1).version == 1
    with pytest.raises(NotFound):
        try_out(world, process_id, {"n": 3}, version=9)
    with pytest.raises(NotFound):
        world.flow.test_process(world.other, process_id, DryRunRequest())
    save_draft(world.scope, process_id, Draft({"id": process_id, "steps": [{"id": "x"}]}, {}))
    with pytest.raises(DefinitionInvalid):
        try_out(world, process_id)
    slow = f"d{next(world.numbers)}"
    world.save(slow, [code("a", "while (true) {}", limits={"time": "20s"})])
    limits = replace(world.config.limits, replay_seconds=1)
    monkeypatch.setattr(world.flow, "config", replace(world.config, limits=limits))
    with pytest.raises(TimedOut, match="replay_seconds"):
        try_out(world, slow)
    monkeypatch.undo()
    slots = [world.flow._replays.acquire(blocking=False) for _ in range(2)]
    try:
        with pytest.raises(ConcurrencyLimited):
            try_out(world, slow)
    finally:
        for _ in slots:
            world.flow._replays.release()


def test_a_mock_is_read_with_the_definition(world: World) -> None:
    process_id = f"d{next(world.numbers)}"
    world.save(process_id, [{**rule("a", "= 1"), "mock": {"when": "always"}}, {**rule("b", "= 1"), "mock": {"output": "= 1 +"}}])
    with pytest.raises(DefinitionInvalid) as caught:
        world.flow.publish_process(world.scope, process_id, PublishRequest())
    assert {d.pointer for d in caught.value.details} >= {"/steps/0/mock/when", "/steps/0/mock/output", "/steps/1/mock/output"}


def test_a_process_that_takes_too_long_is_timed_out(world: World) -> None:
    test_run = dry(world, [code("a", "while (true) {}")], draft={"timeout": "300ms"})
    assert (test_run.error or {})["failure_class"] == "timeout"


def test_a_dry_run_continues_after_failures_like_an_execution(world: World) -> None:
    calm = {**RING, "continue_on_error": True}
    each = {"items": [1, 2, 3], "on_error": "collect", "steps": [rule("half", "= item === 2 ? item.no.thing : item")]}
    both = {"a": [rule("broken", "= input.no.thing")], "b": [ASK, rule("after", "= 1")]}
    steps: list[Any] = [
        calm, {"id": "each", "for_each": each}, {"id": "both", "parallel": both, "continue_on_error": True},
        rule("end", "= [errors.ring.code, steps.each.outputs, steps.each.errors.length, errors.both.step]"),
    ]  # fmt: skip
    test_run = dry(world, steps, mocks={"ring": {"error": {"code": "cracked"}}})
    assert (test_run.status, test_run.output) == ("succeeded", ["cracked", [1, None, 3], 1, "broken"]), test_run.error
    lost = {"id": "lost", "datapool": {"collection": "none", "create": {"values": {}}}, "continue_on_error": True}
    process_id = world.publish([lost, steps[1], {**steps[2], "parallel": {"a": both["a"], "b": [rule("after", "= 1")]}}])
    expected = {name: run.status for name, run in world.steps(world.finish(world.start(process_id))).items()}
    test_run = try_out(world, process_id)
    assert {f"{s.run.step}@{s.run.iteration}" if s.run.iteration else s.run.step: s.run.status for s in test_run.steps} == expected
