"""Step code reads and stores documents: under its grants, once, and answered again as they were."""

import base64
import os
from typing import Any

import pytest

from appliance.core.pages import PageRequest
from appliance.documents import DocumentFilter, Documents, NewDocument
from appliance.processes.rehearsal.dry_run import DryRunRequest
from tests.processes.rehearsal.replaying import digests, replay
from tests.processes.world import World, code

DOCUMENTS = {"documents": ["read", "write"]}
ANYTHING = bytes(range(256))


def documents_of(world: World) -> Documents:
    return world.runner.tools.documents


def store(world: World, name: str, content: bytes) -> str:
    return documents_of(world).store_document(world.scope, NewDocument(name), content).id


def names(world: World, folder: str) -> list[str]:
    page = documents_of(world).list_documents(world.scope, DocumentFilter(folder=folder), PageRequest(limit=500, sort="name"))
    return [document.name for document in page.items]


def run(world: World, body: str, payload: Any = None, grants: Any = None) -> Any:
    process = world.publish([code("a", body)], grants=DOCUMENTS if grants is None else grants)
    return world.finish(world.start(process, payload or {}))


def test_text_is_read_as_text_and_any_content_as_base64(world: World) -> None:
    text, binary = store(world, "a.csv", "ä;b\r\n".encode("utf-8-sig")), store(world, "b.bin", ANYTHING)
    body = "return [await api.documents.read(input.text), await api.documents.read(input.binary), "
    body += "await api.documents.read(input.text, {encoding: 'base64'})]"
    first, second, third = run(world, body, {"text": text, "binary": binary}).output
    assert (first["content"], first["encoding"], first["media_type"], first["revision"]) == ("ä;b\r\n", "text", "text/csv", 1)
    assert (base64.b64decode(second["content"]), second["encoding"], second["size"]) == (ANYTHING, "base64", 256)
    assert base64.b64decode(third["content"]) == "ä;b\r\n".encode("utf-8-sig")


def test_bytes_are_stored_as_they_are_and_facts_are_told(world: World) -> None:
    body = "const made = await api.documents.create(input); return [made, await api.documents.get(made.id)]"
    payload = {"name": "x.png", "content": base64.b64encode(b"\x89PNG\r\n\x1a\n" + ANYTHING).decode(), "encoding": "base64"}
    done = run(world, body, payload | {"folder": "made/here", "tags": ["b", "a"], "media_type": "text/html"})
    created, result = done.output
    assert created == result
    assert (created["media_type"], created["folder"], created["tags"]) == ("image/png", "made/here", ["a", "b"])
    document = documents_of(world).get_document(world.scope, created["id"])
    assert document.created_by == f"execution:{done.id}"
    assert documents_of(world).open_content(world.scope, created["id"]).read(1000) == b"\x89PNG\r\n\x1a\n" + ANYTHING


def test_an_older_revision_can_be_read(world: World) -> None:
    document = store(world, "a.txt", b"one")
    files = documents_of(world)
    files.add_revision(world.scope, document, files.store_content(world.scope, b"two"))
    body = "return [(await api.documents.read(input.id)).content, (await api.documents.read(input.id, {revision: 1})).content]"
    assert run(world, body, {"id": document}).output == ["two", "one"]


@pytest.mark.parametrize(
    ("grants", "call", "missing"),
    [
        ({}, "get('doc_1')", "[read]"),
        ({"documents": ["write"]}, "read('doc_1')", "[read]"),
        ({"documents": ["read"]}, "create({name: 'a', content: 'b'})", "[write]"),
    ],
)
def test_every_call_needs_its_grant(world: World, grants: Any, call: str, missing: str) -> None:
    done = run(world, f"const {{ documents }} = api; return documents.{call}", grants=grants)
    assert (done.status, done.error["code"], done.error["failure_class"]) == ("failed", "policy_denied", "policy")
    assert f"documents: {missing}" in done.error["message"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("get()", "documents.get(id)"),
        ("get('a', {})", "documents.get(id)"),
        ("read('a', {size: 1})", "encoding?, revision?"),
        ("read(input.binary, {revision: 0})", "revision"),
        ("read(input.binary, {encoding: 'text'})", "base64"),
        ("create('a', 'b')", "name, content"),
        ("create({name: 'a', content: 'b', colour: 'red'})", "name, content"),
        ("create({name: 'a', content: 1})", "text"),
        ("create({name: 1, content: ''})", "name"),
        ("create({name: 'a', content: '', tags: 'x'})", "tags"),
        ("create({name: 'a', content: '', folder: '../x'})", "folder"),
    ],
)
def test_an_invalid_call_says_what_is_valid(world: World, call: str, words: str) -> None:
    done = run(world, f"return api.documents.{call}", {"binary": store(world, "b.bin", ANYTHING)})
    assert (done.status, done.error["failure_class"]) == ("failed", "validation"), done.error
    assert words in done.error["message"]


def test_a_document_that_is_gone_fails_the_step_with_its_name(world: World) -> None:
    document = store(world, "a.txt", b"one")
    documents_of(world).delete_document(world.scope, document)
    done = run(world, "return api.documents.read(input.id)", {"id": document})
    assert (done.status, done.error["code"]) == ("failed", "not_found")
    assert document in done.error["message"]


def test_a_document_of_another_tenant_is_not_there(world: World) -> None:
    theirs = documents_of(world).store_document(world.other, NewDocument("a.txt"), b"one").id
    assert run(world, "return api.documents.read(input.id)", {"id": theirs}).error["code"] == "not_found"


@pytest.mark.parametrize("size", [6_500_000, 9_000_000])
def test_content_too_large_for_an_answer_is_refused_with_the_limit(world: World, size: int) -> None:
    """8 MiB: the one is too large as base64, the other as it is."""
    document = store(world, "large.bin", os.urandom(size))
    done = run(world, "return api.documents.read(input.id)", {"id": document})
    assert (done.status, done.error["code"]) == ("failed", "payload_too_large")
    assert str(size) in done.error["message"]
    assert "limits.step_answer_kb" in done.error["message"]


def test_a_replay_stores_nothing_and_knows_what_was_read(world: World) -> None:
    document = store(world, "a.txt", b"one")
    body = "const text = (await api.documents.read(input.id)).content; "
    body += "return [text, (await api.documents.create({name: 'b.txt', content: text, folder: 'replayed'})).id]"
    done = run(world, body, {"id": document})
    assert done.status == "succeeded", done.error
    documents_of(world).delete_document(world.scope, document)
    report = replay(world, done.id)
    assert report.is_identical
    assert names(world, "replayed") == ["b.txt"]


def test_a_test_stores_nothing_and_finds_what_it_would_have_stored(world: World) -> None:
    stored = store(world, "a.txt", b"one")
    body = """
    const made = await api.documents.create({name: "b.txt", content: "two", folder: "tested"});
    const [facts, mine, kept] = [
      await api.documents.get(made.id), await api.documents.read(made.id), await api.documents.read(input.id),
    ];
    return [facts.name, mine.content, kept.content];
    """
    world.save("tested", [code("a", body)], grants=DOCUMENTS)
    before = digests()
    test_run = world.flow.test_process(world.scope, "tested", DryRunRequest({"id": stored}))
    assert (test_run.status, test_run.output) == ("succeeded", ["b.txt", "two", "one"]), test_run.error
    assert [(call.method, call.effect, call.answered_by) for call in test_run.effects] == [("documents.create", "write", "default")]
    assert digests() == before
    assert names(world, "tested") == []


def test_a_retry_plan_tells_of_documents_that_would_be_stored_again(world: World) -> None:
    done = run(world, "await api.documents.create({name: 'again.txt', content: ''}); throw new Error('then this')")
    plan = world.flow.plan_retry(world.scope, done.id)
    assert [effect.sentence for effect in plan.effects] == ["a would store another document."]


STEP = {"id": "send", "integration": {"use": "bell", "action": "ring", "input": {"document": "= input.id"}}}
CALL = code("send", "return await api.integrations.execute('bell', 'ring', {document: input.id})")


@pytest.mark.parametrize("step", [STEP, CALL], ids=["step", "code"])
def test_a_connector_reaches_documents_under_the_grants_of_the_step(world: World, step: dict[str, Any]) -> None:
    payload = {"id": store(world, "a.txt", b"hello")}
    action = {"integrations": {"bell": ["ring"]}}
    done = world.finish(world.start(world.publish([step], grants=DOCUMENTS | action), payload))
    created = documents_of(world).open_content(world.scope, done.output["made"])
    assert (created.name, created.read(100)) == ("echo of a.txt", b"HELLO")
    assert documents_of(world).get_document(world.scope, created.document_id).created_by == f"execution:{done.id}"
    for access, missing in (([], "read"), (["read"], "write")):
        refused = world.finish(world.start(world.publish([step], grants={"documents": access} | action), payload))
        assert (refused.status, refused.error["failure_class"]) == ("failed", "connector")
        assert f"may not {missing} documents" in refused.error["message"]
    strange = documents_of(world).store_document(world.other, NewDocument("b.txt"), b"theirs").id
    unknown = world.finish(world.start(world.publish([step], grants=DOCUMENTS | action), {"id": strange}))
    assert "There is no document" in unknown.error["message"]
