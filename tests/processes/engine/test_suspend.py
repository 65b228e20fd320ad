"""Step code that waits for people, times, events and other processes: its VM is stored, and goes on where it was."""

import itertools
import json
from typing import Any

import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.governance.approvals import ApprovalClosed, approvals
from appliance.processes.definitions.versions import PublishRequest
from appliance.processes.engine import suspension
from appliance.processes.engine.children import MAX_DEPTH
from appliance.processes.executions import service as executions
from appliance.processes.executions.service import EventAnswer
from appliance.tenants import ALL_SCOPES
from appliance.tenants import service as tenants
from tests.processes.world import GRANTS, SEALER, Bell, Wall, World, code, rule, wait_until

HUMAN = {**GRANTS, "human": True}
PROCESSES = itertools.count(1)


def start(world: World, body: str, payload: Any = None, **more: Any) -> str:
    """An execution of one code step that may ask people."""
    return world.start(world.publish([code("ask", body)], **{"grants": HUMAN, **more}), payload)


def waiting(world: World, execution: str, count: int = 1) -> list[dict[str, Any]]:
    """The waits of the execution, once there are `count` of them."""

    def find_waits() -> list[dict[str, Any]]:
        row = world.get(execution)
        waits = (row.waiting_for or {}).get("waits", []) if row.status == "waiting" else []
        return waits if len(waits) == count else []

    return list(wait_until(find_waits))


def send_event(world: World, execution: str, token: str, value: Any = None) -> None:
    world.flow.resume_execution(world.scope, execution, world.get(execution).process_id, EventAnswer(token, value))


def decide(world: World, approval_id: str, status: approvals.Status = "approved", answer: Any = None) -> None:
    """What `decide_approval` writes once it has checked who decides; the rules are tested with approvals."""

    def write() -> None:
        approvals._close(world.scope, approval_id, status, answer=answer, comment="fine", decided_by="user:u", decided_login="ann")
        world.flow.answer_approval(ApprovalClosed(world.scope, approvals.get_approval(world.scope, approval_id)))

    db.write(write)


def test_a_step_sleeps_until_a_person_decides_and_resumes_with_its_locals(world: World) -> None:
    execution = start(
        world,
        """
        const seen = new Map([["before", input.n]]);
        const secretly = ((n) => () => ++n)(41);
        const answer = await api.human.request({kind: "approval", title: "Ship " + input.n + "?"});
        return {status: answer.status, comment: answer.comment, before: seen.get("before"), count: secretly()};
        """,
        {"n": 7},
    )
    (wait,) = waiting(world, execution)
    row = world.get(execution)
    assert (row.wait_reason, wait["kind"], wait["title"], wait["step"]) == ("approval", "human", "Ship 7?", "ask")
    assert world.steps(row)["ask"].status == "waiting"
    assert world.pool.health()["busy"] == 0

    decide(world, wait["approval_id"])

    done = world.finish(execution)
    assert done.output == {"status": "approved", "comment": "fine", "before": 7, "count": 42}
    assert db.rows("SELECT count(*) FROM suspended_step")[0][0] == db.rows("SELECT count(*) FROM pending_call")[0][0] == 0


def test_three_nested_awaits_are_answered_one_after_another(world: World) -> None:
    execution = start(
        world,
        """
        const inner = async (n) => { const e = await api.events.wait("third"); return n + e.add; };
        const middle = async (n) => { const e = await api.events.wait("second"); return inner(n * e.times); };
        const outer = async () => { const e = await api.events.wait("first"); return middle(e.start); };
        const result = await outer();
        await api.datapool.create("marks", {what: String(result)});
        return result;
        """,
    )
    for name, value in (("first", {"start": 2}), ("second", {"times": 10}), ("third", {"add": 1})):
        (wait,) = waiting(world, execution)
        assert (wait["kind"], wait["name"]) == ("event", name)
        send_event(world, execution, wait["token"], value)
        wait_until(lambda token=wait["token"]: token not in json.dumps(world.get(execution).waiting_for))
    assert world.finish(execution).output == 21
    assert world.marks() == [("21", None)]


def test_several_waits_at_once_are_listed_and_answered_in_any_order(world: World) -> None:
    execution = start(
        world,
        """
        const order = [];
        const note = (name) => (value) => { order.push(name); return value; };
        const all = await Promise.all([
          api.events.wait("a").then(note("a")), api.events.wait("b").then(note("b")), api.wait.for("30ms").then(note("timer")),
        ]);
        return {all, order};
        """,
    )
    first, second = waiting(world, execution, 2)
    send_event(world, execution, second["token"], "B")
    wait_until(lambda: len((world.get(execution).waiting_for or {}).get("waits", [])) == 1)
    send_event(world, execution, first["token"], "A")
    done = world.finish(execution)
    assert done.output["all"] == ["A", "B", None]
    assert done.output["order"] == ["timer", second["name"], first["name"]]


@pytest.mark.parametrize("call", ['api.wait.for("40ms")', "api.wait.until(new Date(Date.now() + 40).toISOString())"])
def test_a_step_sleeps_until_its_time(world: World, call: str) -> None:
    body = f"const from = Date.now(); const nothing = await {call}; return [nothing, Date.now() - from];"
    done = world.finish(start(world, body))
    nothing, wake_time = done.output
    assert nothing is None
    assert 40 <= wake_time < 5_000


def test_a_child_gives_its_output_to_the_step_that_waits_for_it(world: World) -> None:
    child = world.publish([rule("double", "= input.n * 2")])
    done = world.finish(
        start(
            world,
            f"""
            const loose = await api.processes.execute("{child}", {{n: 1}});
            return {{loose, waited: await api.processes.execute("{child}", {{n: 21}}, {{wait: true}})}};
            """,
            grants={"processes": [child]},
        )
    )
    assert done.output["waited"] == 42
    assert done.output["loose"]["process_id"] == child
    loose = world.finish(done.output["loose"]["execution_id"])
    assert (loose.output, loose.parent) == (2, done.id)


def test_a_child_that_fails_is_an_error_in_the_step(world: World) -> None:
    child = world.publish([code("bad", 'throw new Error("no stock");')])
    body = f"""
        try {{ await api.processes.execute("{child}", {{}}, {{wait: true}}); }}
        catch (error) {{ return [error.code, error.message.includes("no stock")]; }}
    """
    assert world.finish(start(world, body, grants={"processes": [child]})).output == ["child_failed", True]


def test_a_child_whose_process_is_deleted_is_an_error_in_the_step(world: World) -> None:
    child = world.publish([code("wait", 'await api.events.wait("never");')])
    body = f'try {{ await api.processes.execute("{child}", {{}}, {{wait: true}}); }} catch (e) {{ return [e.code, e.message]; }}'
    execution = start(world, body, grants={"processes": [child]})
    (wait,) = waiting(world, execution)
    world.flow.delete_process(world.scope, child, force=True)
    result, message = world.finish(execution).output
    assert result == "child_failed"
    assert wait["execution_id"] in message


def test_a_process_that_executes_itself_ends(world: World) -> None:
    process = f"endless{next(PROCESSES)}"
    body = f'return await api.processes.execute("{process}", {{}}, {{wait: true}}).then((n) => n + 1, () => 0);'
    world.save(process, [code("again", body)], grants={"processes": [process]})
    world.flow.publish_process(world.scope, process, PublishRequest())
    assert world.finish(world.start(process)).output == MAX_DEPTH


@pytest.mark.parametrize(
    ("call", "code_", "says"),
    [
        ('api.human.request({kind: "approval", title: "?"})', "policy_denied", "human: true"),
        ('api.processes.execute("other", {})', "policy_denied", "processes: [other]"),
        ('api.secrets.get("token")', "policy_denied", "secrets: [token]"),
        ('api.wait.for("soon")', "validation_failed", "soon"),
        ('api.wait.for("9000d")', "validation_failed", "90 days"),
        ("api.wait.until(5)", "validation_failed", "text such as"),
        ("api.events.wait()", "validation_failed", "name"),
        ('api.events.wait("x", {until: 1})', "validation_failed", "timeout"),
        ('api.documents.get("doc")', "policy_denied", "documents: [read]"),
    ],
)
def test_a_call_that_may_not_wait_is_an_error_with_the_next_step(world: World, call: str, code_: str, says: str) -> None:
    body = f"try {{ await {call}; }} catch (error) {{ return [error.code, error.message]; }}"
    result, message = world.finish(start(world, body, grants=GRANTS)).output
    assert result == code_
    assert says in message


def test_an_event_that_does_not_come_in_time_is_an_error(world: World) -> None:
    body = 'try { await api.events.wait("payment", {timeout: "20ms"}); } catch (e) { return [e.code, e.message]; }'
    assert world.finish(start(world, body)).output == ["wait_timed_out", "the event 'payment' did not arrive in time"]


def test_an_undecided_request_expires(world: World) -> None:
    body = 'return (await api.human.request({kind: "approval", title: "?", expires: "1s"})).status;'
    execution = start(world, body)
    assert world.finish(execution).output == "expired"
    items = approvals.list_approvals(world.scope, approvals.ApprovalFilter(execution_id=execution), PageRequest())
    assert [each.status for each in items.items] == ["expired"]


def test_a_cancelled_execution_withdraws_its_questions_and_cancels_its_children(world: World) -> None:
    child = world.publish([code("wait", 'await api.events.wait("never");')])
    body = f"""
        await Promise.all([
          api.human.request({{kind: "approval", title: "?"}}), api.processes.execute("{child}", {{}}, {{wait: true}}),
        ]);
    """
    execution = start(world, body, grants={"human": True, "processes": [child]})
    waits = {wait["kind"]: wait for wait in waiting(world, execution, 2)}
    wait_until(lambda: world.get(waits["child"]["execution_id"]).status == "waiting")

    world.flow.cancel_execution(world.scope, execution)

    assert world.get(execution).status == world.get(waits["child"]["execution_id"]).status == "cancelled"
    assert approvals.get_approval(world.scope, waits["human"]["approval_id"]).status == "cancelled"
    assert db.rows("SELECT count(*) FROM pending_call")[0][0] == 0


def test_a_step_that_fails_withdraws_what_it_asked(world: World) -> None:
    body = 'api.human.request({kind: "approval", title: "?"}); await api.datapool.query("marks"); throw new Error("x");'
    execution = start(world, body)
    assert world.finish(execution).status == "failed"
    items = approvals.list_approvals(world.scope, approvals.ApprovalFilter(execution_id=execution), PageRequest())
    assert [each.status for each in items.items] == ["cancelled"]


def test_events_are_for_the_execution_that_waits_and_come_once(world: World) -> None:
    execution = start(world, 'return await api.events.wait("paid");')
    (wait,) = waiting(world, execution)
    process = world.get(execution).process_id
    resume = world.flow.resume_execution
    with pytest.raises(Exception, match=r"execution"):
        resume(world.other, execution, process, EventAnswer(wait["token"]))
    with pytest.raises(Exception, match="is not waiting under this token"):
        resume(world.scope, execution, process, EventAnswer("wai_unknown"))
    resume(world.scope, execution, process, EventAnswer(wait["token"], {"sum": 3}))
    assert world.finish(execution).output == {"sum": 3}
    with pytest.raises(Exception, match="succeeded already"):
        resume(world.scope, execution, process, EventAnswer(wait["token"]))


def test_a_request_is_not_answered_by_a_key(world: World) -> None:
    execution = start(world, 'await api.human.request({kind: "input", title: "?", schema: {type: "object"}});')
    (wait,) = waiting(world, execution)
    assert world.get(execution).wait_reason == "input"
    with pytest.raises(Exception, match="only a person can decide"):
        send_event(world, execution, wait["approval_id"])


def test_a_condition_is_not_evaluated_again_when_the_step_resumes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    wall, later = Wall(monkeypatch), clock.now_ms() + 3_600_000
    process = world.publish([code("late", 'await api.events.wait("go"); return "went";', when=f"= Date.now() < {later}")])
    execution = world.start(process)
    (wait,) = waiting(world, execution)
    wall.offset = 2 * 3_600_000
    assert world.finish(world.start(process)).output is None, "it holds no longer"
    send_event(world, execution, wait["token"])
    assert world.finish(execution).output == "went"


def test_time_used_before_a_wait_counts_once_for_the_execution_timeout(world: World) -> None:
    body = 'await api.integrations.execute("bell", "hold", {}); await api.wait.for("10ms"); return "in time";'
    for seconds in (2, 20):  # a busy machine may take the time that is left
        Bell.go_on.clear()
        execution = start(world, body, timeout=f"{seconds}s")
        assert Bell.arrived.acquire(timeout=10)
        ends = clock.monotonic() + seconds * 0.55  # more than half of its time
        wait_until(lambda ends=ends: clock.monotonic() > ends)
        Bell.go_on.set()
        done = world.finish(execution, 30)
        if done.status == "succeeded":
            break
    assert done.output == "in time", done.error


def test_steps_of_a_for_each_sleep_at_the_same_time(world: World) -> None:
    inner = code("each", "return item + (await api.events.wait('go-' + item)).more;", input="= item")
    inner["code"]["source"] = inner["code"]["source"].replace("return item", "const item = input; return item")
    process = world.publish([{"id": "all", "for_each": {"items": "= input.items", "concurrency": 3, "steps": [inner]}}])
    execution = world.start(process, {"items": ["a", "b", "c"]})
    waits = waiting(world, execution, 3)
    assert sorted(wait["iteration"] for wait in waits) == ["0", "1", "2"]
    for wait in reversed(waits):
        send_event(world, execution, wait["token"], {"more": "!"})
    assert world.finish(execution).output == ["a!", "b!", "c!"]


def test_an_answer_is_taken_while_another_step_of_the_execution_computes(world: World) -> None:
    body = """
      if (input === "holds") return (await api.integrations.execute("bell", "hold", {})) && "held";
      await api.events.wait("go"); await api.datapool.create("marks", {what: "went on"}); return input;
    """
    each = code("each", body, input="= item")
    process = world.publish([{"id": "all", "for_each": {"items": ["waits", "holds"], "concurrency": 2, "steps": [each]}}])
    execution = world.start(process)
    wait_until(lambda: [call for call in suspension.open_calls(world.scope, execution) if world.steps(execution).get("each@0")])
    assert Bell.arrived.acquire(timeout=10)
    (pending,) = suspension.open_calls(world.scope, execution)
    send_event(world, execution, pending.token)
    wait_until(lambda: world.marks() == [("went on", None)])
    assert world.get(execution).status == "running"
    Bell.go_on.set()
    assert world.finish(execution).output == ["waits", "held"]


def test_secrets_reach_the_step_and_stay_sealed_in_the_journal(world: World) -> None:
    tenants.set_secret(world.scope, SEALER, "token", "s3cr3t-value-41")
    execution = start(world, 'return (await api.secrets.get("token")).length;', grants={"secrets": ["token"]})
    assert world.finish(execution).output == 15
    text = json.dumps([list(row) for row in db.rows("SELECT args, answer FROM journal WHERE execution_id = ?", (execution,))])
    assert "s3cr3t" not in text


def test_two_hundred_suspended_steps_hold_no_place_in_the_sandbox(world: World) -> None:
    process = world.publish([code("ask", 'const n = input.n; const e = await api.events.wait("go"); return n + e.add;')])
    started = [world.start(process, {"n": number}, soon=False) for number in range(200)]
    tokens = {execution: waiting(world, execution)[0]["token"] for execution in started}
    assert world.pool.health()["busy"] == 0
    for execution, token in tokens.items():
        send_event(world, execution, token, {"add": 1000})
    assert [world.finish(execution).output for execution in started] == [1000 + number for number in range(200)]


def test_a_damaged_vm_is_a_clear_failure(world: World) -> None:
    execution = start(world, 'await api.events.wait("go");')
    (wait,) = waiting(world, execution)
    sealed = bytearray(db.rows("SELECT sealed FROM suspended_step")[0][0])
    sealed[len(sealed) // 2] ^= 1
    db.write(lambda: db.execute("UPDATE suspended_step SET sealed = ?", (bytes(sealed),)))
    send_event(world, execution, wait["token"])
    done = world.finish(execution)
    assert (done.status, done.error["failure_class"]) == ("failed", "system")


def test_waiting_calls_belong_to_their_tenant(world: World) -> None:
    execution = start(world, 'await api.events.wait("go");')
    waiting(world, execution)
    other = TenantScope("globex", "key:test", ALL_SCOPES)
    assert suspension.open_calls(other, execution) == []
    with pytest.raises(Exception, match=r"execution"):
        executions.get_execution(other, execution)
