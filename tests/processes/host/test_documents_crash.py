"""After a crash at any write of a step that stores documents, each is there once."""

from typing import Any

import pytest

from appliance.blobs import Blobs
from appliance.core.database import db
from tests.processes.world import World, code

from .test_documents import DOCUMENTS, names
from .test_journal import MOST_WRITES, When, crash_and_drive


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_write_leaves_every_document_once(idle_world: World, when: When) -> None:
    world = idle_world
    body = """
    const first = await api.documents.create({name: "first.txt", content: "one", folder: input.folder});
    const read = await api.documents.read(first.id);
    const second = await api.documents.create({name: "second.txt", content: read.content + "!", folder: input.folder});
    return [first.id, second.id, (await api.documents.get(second.id)).size];
    """
    process = world.publish([code("a", body)], grants=DOCUMENTS)
    for number in range(1, MOST_WRITES):
        folder = f"{when}-{number}"
        execution = world.start(process, {"folder": folder}, soon=False)
        cut = crash_and_drive(world, execution, [(number, when)])
        row = world.get(execution)
        assert row.status == "succeeded", (number, row.error)
        assert names(world, folder) == ["first.txt", "second.txt"], number
        assert row.output[2] == 4
        assert world.steps(execution)["a"].attempt == 1
        if not cut:
            break
    assert 5 < number < MOST_WRITES


def test_a_worker_that_has_lost_its_claim_stores_no_document(idle_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker claims the execution while the bytes are being written; only its row is stored."""
    world = idle_world
    process = world.publish(
        [code("a", "return (await api.documents.create({name: 'a.txt', content: 'one', folder: 'fenced'})).id")], grants=DOCUMENTS
    )
    execution = world.start(process, soon=False)
    original_put = Blobs.put

    def slow(self: Blobs, *args: Any) -> Any:
        stored = original_put(self, *args)
        db.write(lambda: db.execute("UPDATE execution SET fence = fence + 1 WHERE id = ?", (execution,)))
        return stored

    with monkeypatch.context() as patch:
        patch.setattr(Blobs, "put", slow)
        world.runner.drive("acme", execution)
    assert names(world, "fenced") == []
    crash_and_drive(world, execution, [])
    assert world.get(execution).status == "succeeded"
    assert names(world, "fenced") == ["a.txt"]
