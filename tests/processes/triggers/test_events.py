"""Changed entities and ended executions as triggers: recorded in their transaction, and never in endless chains."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from appliance.blobs import Blobs, LocalPlaces
from appliance.core.database import db
from appliance.datapool import ImportOptions
from appliance.datapool import service as datapool
from appliance.documents import REVISION_TABLE, Documents, NewDocument
from appliance.processes.engine.children import MAX_DEPTH
from appliance.processes.executions.service import Execution
from appliance.processes.triggers.service import Firing, TriggerState
from tests.processes.world import World, code, rule, wait_until

MARKS = {"collection": "marks", "events": ["created", "updated", "deleted"]}


@pytest.fixture(autouse=True)
def nobody_listens(world: World) -> Iterator[None]:
    yield
    wait_until(lambda: not db.rows("SELECT 1 FROM firing WHERE status = 'pending'"))
    wait_until(lambda: not db.rows("SELECT 1 FROM execution WHERE finished_at IS NULL"))
    db.write(lambda: db.execute("DELETE FROM trigger_state"))


def listen(world: World, trigger: dict[str, Any], steps: list[dict[str, Any]] | None = None, **more: Any) -> str:
    return world.publish(steps or [rule("seen", "= input")], triggers=[trigger], **more)


def settled(world: World, process_id: str) -> list[Firing]:
    """The events of a process, once all of them have been handled."""
    mine = Firing.process_id == process_id
    wait_until(lambda: not world.scope.select(Firing).where(mine & (Firing.status == "pending")).exists())
    return list(world.scope.select(Firing).where(mine).order_by(Firing.id))


def inputs(world: World, process_id: str) -> list[Any]:
    """The inputs of the executions started by events, in the order of the events."""
    result = [world.scope.get(Execution, id=each.execution_id) for each in settled(world, process_id)]
    return [row.input for row in result]


def test_every_change_of_an_entity_is_an_event(world: World) -> None:
    process_id = listen(world, {"datapool": {**MARKS, "input": {"what": "= trigger.entity.what", "event": "= trigger.event"}}})
    entity = datapool.create_entity(world.scope, "marks", {"what": "a"})
    datapool.update_entity(world.scope, "marks", entity["id"], {"what": "b"})
    datapool.update_entity(world.scope, "marks", entity["id"], {"what": "b"})
    datapool.delete_entity(world.scope, "marks", entity["id"])
    result = [(each["event"], each["what"]) for each in inputs(world, process_id)]
    assert result == [("created", "a"), ("updated", "b"), ("deleted", "b")], "what changes nothing is no event"


def test_the_event_itself_is_the_input_unless_it_is_mapped(world: World) -> None:
    process_id = listen(world, {"datapool": {"collection": "marks", "events": ["created"]}})
    entity = datapool.create_entity(world.scope, "marks", {"what": "a"})
    assert inputs(world, process_id) == [{"event": "created", "collection": "marks", "entity": entity}]


def test_a_filter_chooses_and_a_broken_one_is_a_failure(world: World) -> None:
    chosen = {"collection": "marks", "events": ["created"], "filter": {"what": {"_starts_with": "a"}}}
    process_id = listen(world, {"datapool": {**chosen, "input": {"what": "= trigger.entity.what"}}})
    created = [{"op": "create", "collection": "marks", "values": {"what": what}} for what in ("a1", "b", "a2")]
    datapool.run_batch(world.scope, created)
    assert inputs(world, process_id) == [{"what": "a1"}, {"what": "a2"}]
    broken = db.dump_json({"collection": "marks", "events": ["created"], "filter": {"gone": 1}})
    db.write(lambda: db.execute("UPDATE trigger_state SET settings = ? WHERE process_id = ?", (broken, process_id)))
    datapool.create_entity(world.scope, "marks", {"what": "a3"})
    failed = settled(world, process_id)[-1]
    assert (failed.status, failed.error["code"]) == ("failed", "invalid_filter")


def test_imports_and_batches_are_events_and_rolled_back_writes_are_not(world: World) -> None:
    process_id = listen(world, {"datapool": {**MARKS, "input": {"what": "= trigger.entity.what"}}})
    data = b'{"what": "i1"}\n{"what": 7, "note": []}\n{"what": "i2"}\n'
    assert datapool.import_entities(world.scope, "marks", BytesIO(data), ImportOptions("ndjson")).created == 2
    datapool.import_entities(world.scope, "marks", BytesIO(data), ImportOptions("ndjson", on_error="refuse"))
    operations = [{"op": "create", "collection": "marks", "values": {"what": "b1"}}]
    datapool.run_batch(world.scope, operations, dry_run=True)

    def fail() -> None:
        datapool.run_batch(world.scope, operations)
        raise RuntimeError("taken back")

    with pytest.raises(RuntimeError):
        db.write(fail)
    datapool.run_batch(world.scope, operations)
    assert inputs(world, process_id) == [{"what": "i1"}, {"what": "i2"}, {"what": "b1"}]


def test_writes_of_step_code_are_events_with_their_execution_behind_them(world: World) -> None:
    process_id = listen(world, {"datapool": {"collection": "marks", "events": ["created"], "input": {}}})
    world.run([code("write", 'await api.datapool.create("marks", {what: "x"}); return 1')])
    world.run([{"id": "declared", "datapool": {"collection": "marks", "create": {"values": {"what": "y"}}}}])
    assert [each.depth for each in settled(world, process_id)] == [1, 1]


def test_changes_of_another_tenant_are_not_events(world: World) -> None:
    datapool.create_collection(world.other, {"name": "marks", "fields": [{"name": "what", "type": "text"}]})
    process_id = listen(world, {"datapool": MARKS})
    datapool.create_entity(world.other, "marks", {"what": "theirs"})
    assert settled(world, process_id) == []


def test_a_paused_process_gets_no_events(world: World) -> None:
    process_id = listen(world, {"datapool": MARKS})
    world.flow.pause_process(world.scope, process_id)
    datapool.create_entity(world.scope, "marks", {"what": "unseen"})
    world.flow.resume_process(world.scope, process_id)
    datapool.create_entity(world.scope, "marks", {"what": "seen"})
    assert [each["entity"]["what"] for each in inputs(world, process_id)] == ["seen"]


def test_a_process_that_triggers_itself_is_cut_off_visibly(world: World) -> None:
    step = {"id": "again", "datapool": {"collection": "marks", "create": {"values": {"what": "= `${execution.id}`"}}}}
    process_id = listen(world, {"datapool": {"collection": "marks", "events": ["created"]}}, [step])
    datapool.create_entity(world.scope, "marks", {"what": "first"})
    wait_until(lambda: world.scope.find(Firing, process_id=process_id, status="failed"))
    result = settled(world, process_id)
    assert [each.depth for each in result] == list(range(MAX_DEPTH + 2))
    assert [each.status for each in result] == ["started"] * (MAX_DEPTH + 1) + ["failed"]
    assert result[-1].error["code"] == "too_deep"
    assert world.scope.get(TriggerState, process_id=process_id).last_error["code"] == "too_deep"


def test_the_end_of_a_process_starts_another(world: World) -> None:
    good, bad = world.publish([rule("a", "= {sum: input.n + 1}")]), world.publish([rule("a", "= input.nothing.here")])
    mapping = {"status": "= trigger.execution.status", "output": "= trigger.execution.output ?? null"}
    process_id = listen(world, {"process": {"id": [good, bad], "on": ["succeeded", "failed"], "input": mapping}})
    only_failed = listen(world, {"process": {"id": good, "on": ["failed"]}})
    world.finish(world.start(good, {"n": 1}))
    world.finish(world.start(bad))
    assert inputs(world, process_id) == [{"status": "succeeded", "output": {"sum": 2}}, {"status": "failed", "output": None}]
    assert settled(world, only_failed) == []
    [failed] = [each for each in inputs(world, listen_again(world, bad)) if each]
    assert (failed["execution"]["error"]["failure_class"], failed["execution"]["process_id"]) == ("validation", bad)


def listen_again(world: World, bad: str) -> str:
    process_id = listen(world, {"process": {"id": bad, "on": ["failed"]}})
    world.finish(world.start(bad))
    return process_id


def test_processes_that_end_into_each_other_are_cut_off(world: World) -> None:
    ping = world.publish([rule("a", "= 1")])
    pong = listen(world, {"process": {"id": ping}})
    world.republish(ping, [rule("a", "= 1")], triggers=[{"process": {"id": pong}}])
    world.start(ping)
    wait_until(lambda: db.rows("SELECT 1 FROM firing WHERE status = 'failed' AND process_id IN (?, ?)", (ping, pong)))
    counted = db.rows("SELECT count(*) FROM firing WHERE status = 'started' AND process_id IN (?, ?)", (ping, pong))
    assert counted == [(MAX_DEPTH,)]


def test_a_document_is_an_event(world: World, folder: Path) -> None:
    mapping = {"what": "= `${trigger.event} ${trigger.document.name} ${trigger.document.revision}`"}
    process_id = listen(world, {"document": {"events": ["created", "updated"], "filter": {"folder": "inbox"}, "input": mapping}})
    files = Documents(Blobs(LocalPlaces(folder / "blobs"), [REVISION_TABLE]))
    stored = files.store_document(world.scope, NewDocument("a.txt", folder="inbox"), b"one")
    files.store_document(world.scope, NewDocument("b.txt", folder="elsewhere"), b"two")
    files.add_revision(world.scope, stored.id, files.store_content(world.scope, b"three"))
    assert [each["what"] for each in inputs(world, process_id)] == ["created a.txt 1", "updated a.txt 2"]
