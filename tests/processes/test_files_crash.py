"""After a crash at any write a file step has made one document, and every row of a file stands once in its collection."""

from collections.abc import Callable
from typing import Any

import pytest

from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.datapool import service as datapool
from appliance.documents import DocumentFilter, Documents, NewDocument
from appliance.processes.engine import store
from appliance.processes.files import loading

from .host.test_journal import MOST_WRITES, PowerCut, When, power_cut
from .world import World

ROWS = "what,note\n" + "".join(f"r{number},n\n" for number in range(7))


def documents_of(world: World) -> Documents:
    return world.runner.tools.documents


def store_csv(world: World, content: str = ROWS) -> str:
    return documents_of(world).store_document(world.scope, NewDocument("rows.csv"), content.encode()).id


def drive_with_a_crash(world: World, execution: str, number: int, when: When) -> bool:
    """Run it to its end with one crash on the way; whether there was one."""
    was_cut = False
    try:
        with power_cut(number, when):
            world.runner.drive("acme", execution)
    except PowerCut:
        was_cut = True
    while world.get(execution).status not in store.FINISHED:
        world.lose_worker(execution)
        world.runner.drive("acme", execution)
    return was_cut


def crash_everywhere(world: World, start: Callable[[], str], check: Callable[[str, int], None], when: When) -> int:
    """A crash at every write in turn; answers how many there are."""
    for number in range(1, MOST_WRITES):
        execution = start()
        was_cut = drive_with_a_crash(world, execution, number, when)
        assert world.get(execution).status == "succeeded", world.get(execution).error
        check(execution, number)
        if not was_cut:
            return number
    raise AssertionError("there is no end of writes")


@pytest.mark.parametrize("when", ["before", "after"])
def test_there_is_one_document_after_a_crash_at_any_write(idle_world: World, when: When) -> None:
    world = idle_world
    write = {"operation": "write", "format": "csv", "data": [{"a": 1}], "name": "= `made-${execution.id}.csv`"}
    process = world.publish(
        [{"id": "made", "file": write}, {"id": "read", "file": {"operation": "parse", "document": "= steps.made.document"}}]
    )

    def check(execution: str, number: int) -> None:
        expected = DocumentFilter(name=f"made-{execution}")
        items = documents_of(world).list_documents(world.scope, expected, PageRequest(limit=100)).items
        assert len(items) == 1, number
        assert world.get(execution).output["rows"] == [{"a": "1"}]

    assert 4 < crash_everywhere(world, lambda: world.start(process, soon=False), check, when) < MOST_WRITES


@pytest.mark.parametrize("when", ["before", "after"])
def test_every_row_exists_once_after_a_crash_at_any_write(idle_world: World, when: When, monkeypatch: pytest.MonkeyPatch) -> None:
    world = idle_world
    monkeypatch.setattr(loading, "ROWS_AT_ONCE", 2)
    read = {"operation": "parse", "document": "= input.d", "to": {"collection": "marks"}}
    process, input_data = world.publish([{"id": "load", "file": read}]), {"d": store_csv(world)}

    def start() -> str:
        world.wipe()
        return world.start(process, input_data, soon=False)

    def check(execution: str, number: int) -> None:
        assert sorted(world.marks()) == [(f"r{each}", "n") for each in range(7)], number
        output = world.get(execution).output
        assert (output["rows"], output["created"]) == (7, 7), number

    assert 6 < crash_everywhere(world, start, check, when) < MOST_WRITES


def run_twice(world: World, read: dict[str, Any], payload: dict[str, Any]) -> str:
    """An execution whose step fails once and is retried."""
    retry = {"max_attempts": 2, "initial": "400ms", "jitter": False, "classes": ["validation"]}
    process = world.publish([{"id": "load", "file": read, "retry": retry}])
    return world.start(process, payload, soon=False)


def test_a_retry_continues_after_the_stored_rows(idle_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The conflicting row of the first attempt is deleted before the second."""
    world = idle_world
    monkeypatch.setattr(loading, "ROWS_AT_ONCE", 2)
    datapool.create_collection(world.scope, {"name": "strict", "fields": [{"name": "what", "type": "text", "unique": True}]})
    obstacle = datapool.create_entity(world.scope, "strict", {"what": "r5"})
    target = {"collection": "strict", "fields": {"what": "what"}}
    execution = run_twice(world, {"operation": "parse", "document": "= input.d", "to": target}, {"d": store_csv(world)})
    world.runner.drive("acme", execution)
    waiting = world.steps(execution)["load"]
    assert (waiting.status, waiting.error["code"]) == ("retrying", "rows_refused")
    assert "row 6, what" in waiting.error["message"]
    assert "the 4 rows of earlier batches are stored" in waiting.error["message"]
    datapool.delete_entity(world.scope, "strict", obstacle["id"])
    while world.get(execution).status not in store.FINISHED:
        world.runner.drive("acme", execution)
    output = world.get(execution).output
    assert (output["rows"], output["created"], output["failed"]) == (7, 7, 0)
    items = datapool.query_entities(world.scope, "strict", {"limit": 100}).items
    assert sorted(item["what"] for item in items) == [f"r{number}" for number in range(7)]


def test_a_retry_starts_over_with_another_content(idle_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is corrected between the attempts: its first rows are not those that stand already."""
    world = idle_world
    monkeypatch.setattr(loading, "ROWS_AT_ONCE", 2)
    fields = [{"name": "what", "type": "text", "unique": True}, {"name": "note", "type": "integer"}]
    datapool.create_collection(world.scope, {"name": "counted", "fields": fields})
    document = store_csv(world, "what,note\na,1\nb,2\nc,x\n")
    target = {"collection": "counted", "key": ["what"]}
    execution = run_twice(world, {"operation": "parse", "document": "= input.d", "to": target}, {"d": document})
    world.runner.drive("acme", execution)
    assert "row 3, note" in world.steps(execution)["load"].error["message"]
    content = documents_of(world).store_content(world.scope, b"what,note\na,10\nb,20\nc,30\n")
    documents_of(world).add_revision(world.scope, document, content)
    while world.get(execution).status not in store.FINISHED:
        world.runner.drive("acme", execution)
    output = world.get(execution).output
    assert (output["rows"], output["created"], output["updated"]) == (3, 1, 2)


def test_a_worker_that_lost_its_claim_stores_nothing(idle_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world = idle_world
    monkeypatch.setattr(loading, "ROWS_AT_ONCE", 2)
    read = {"operation": "parse", "document": "= input.d", "to": {"collection": "marks"}}
    execution = world.start(world.publish([{"id": "load", "file": read}]), {"d": store_csv(world)}, soon=False)
    import_entities = datapool.import_entities

    def import_and_lose_claim(*args: Any) -> Any:
        report = import_entities(*args)
        db.execute("UPDATE execution SET fence = fence + 1 WHERE id = ?", (execution,))
        return report

    monkeypatch.setattr(datapool, "import_entities", import_and_lose_claim)
    world.runner.drive("acme", execution)
    monkeypatch.undo()
    assert len(world.marks()) == 2  # the one batch of which it had the fence
    monkeypatch.setattr(loading, "ROWS_AT_ONCE", 2)
    world.lose_worker(execution)
    world.runner.drive("acme", execution)
    assert sorted(world.marks()) == [(f"r{each}", "n") for each in range(7)]
