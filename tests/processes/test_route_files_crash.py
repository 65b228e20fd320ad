"""After a crash at any write of a call with files, each document belongs to an execution that was told of it, or is not there."""

from functools import partial
from typing import Any

import pytest

from appliance.core.database import db
from appliance.core.errors import ApplianceError
from appliance.core.pages import PageRequest
from appliance.documents import DocumentFilter
from appliance.processes.executions.starting import StartRequest
from appliance.sites.webapps.route_files import store_files
from appliance.web import SentFile
from appliance.webapps.routes import Upload

from .host.test_journal import MOST_WRITES, PowerCut, When, power_cut
from .world import World, rule

INPUT = {"type": "object", "required": ["photo"], "properties": {"photo": {"type": "array", "maxItems": 2}}}


def call(world: World, process: str, folder: str, *texts: bytes) -> None:
    """What a route does with a form that has these files."""
    documents, files = world.runner.tools.documents, []
    for number, text in enumerate(texts):
        receiver = documents.receiver()
        receiver.write(text)
        files.append(SentFile("photo", f"{number}.txt", "text/plain", receiver.finish()))
    stored = store_files(documents, world.scope, Upload(folder, 1.0, ("text/*",)), files)
    beside = partial(stored.create, documents, world.scope)
    world.flow.start_execution(world.scope, process, StartRequest({**stored.ids, "folder": folder}), write_related=beside)


def document_ids(world: World, folder: str) -> set[str]:
    page = world.runner.tools.documents.list_documents(world.scope, DocumentFilter(folder=folder), PageRequest(limit=500))
    return {each.id for each in page.items}


def reported_ids(world: World, folder: str) -> list[Any]:
    inputs = [world.get(execution).input for (execution,) in db.rows("SELECT id FROM execution WHERE tenant_id = 'acme'")]
    return [document_id for payload in inputs if payload.get("folder") == folder for document_id in payload["photo"]]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_write_leaves_no_unreported_document(idle_world: World, when: When) -> None:
    world, folder = idle_world, f"sent-{when}"
    process = world.publish([rule("a", "= input")], input=INPUT)
    for number in range(1, MOST_WRITES):
        try:
            with power_cut(number, when):
                call(world, process, folder, f"{when} {number}".encode(), b"always the same")
        except PowerCut:
            assert sorted(reported_ids(world, folder)) == sorted(document_ids(world, folder)), f"crash {when} write {number}"
        else:
            assert sorted(reported_ids(world, folder)) == sorted(document_ids(world, folder))
            assert number > 3, "files are kept by writes of their own, before the one of the execution"
            return
    raise AssertionError("the call never came to its end")


def test_a_refused_request_stores_no_document(idle_world: World) -> None:
    world, folder = idle_world, "sent-in-vain"
    process = world.publish([rule("a", "= input")], input=INPUT)
    with pytest.raises(ApplianceError, match="photo"):
        call(world, process, folder, b"one", b"two", b"three")
    busy = {"limit": 1, "behaviour": "reject"}
    limited = world.publish([rule("a", "= input")], input=INPUT, concurrency=busy)
    call(world, limited, folder, b"first", b"in")
    before = document_ids(world, folder)
    assert len(before) == 2
    with pytest.raises(ApplianceError):
        call(world, limited, folder, b"second", b"out")
    assert document_ids(world, folder) == before
