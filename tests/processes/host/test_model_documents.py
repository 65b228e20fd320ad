"""Documents as input of models: text of text files and PDF, images unchanged, nothing else."""

import base64
from collections.abc import Iterator

import pytest

from appliance.documents import NewDocument
from tests.llm.provider import Provider
from tests.processes.world import World, code

PICTURE = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+M8AAAMBAQDJ/pLvAAAAAElFTkSuQmCC")


def make_pdf(text: str) -> bytes:
    """A PDF of one page with a line of text, and the table of its parts."""
    stream = f"BT /F1 18 Tf 72 720 Td ({text}) Tj ET".encode()
    parts = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    created, places = b"%PDF-1.4\n", []
    for number, part in enumerate(parts, 1):
        places.append(len(created))
        created += b"%d 0 obj\n%s\nendobj\n" % (number, part)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    begin = len(created)
    created += b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(parts) + 1, table)
    return created + b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(parts) + 1, begin)


@pytest.fixture
def profile(world: World, provider: Provider) -> Iterator[Provider]:
    world.add_profile(provider)
    yield provider
    world.models.delete_profile(world.scope, "default")


def store(world: World, name: str, content: bytes) -> str:
    return world.flow.runner.tools.documents.store_document(world.scope, NewDocument(name), content).id


def test_texts_pdf_and_pictures_go_to_the_model(world: World, profile: Provider) -> None:
    letter = store(world, "letter.txt", "Dear Ann,\nthanks für alles.".encode())
    invoice = store(world, "invoice.pdf", make_pdf("Total 440 EUR"))
    scan = store(world, "scan.png", PICTURE)
    step = {"profile": "default", "prompt": "What is this?", "documents": [letter, invoice, scan], "images": "= input.images"}
    done = world.run([{"id": "ask", "llm": step}], {"images": [scan]})
    assert done.status == "succeeded", done.error
    content = profile.requests[0].body["messages"][0]["content"]
    text = content[0]["text"]
    assert "Document 1:\nDear Ann,\nthanks für alles." in text
    assert "Document 2:\nTotal 440 EUR" in text
    assert len(content) == 3
    assert content[1]["image_url"]["url"] == f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"


@pytest.mark.parametrize(
    ("name", "content", "code_", "words"),
    [
        ("data.bin", b"\x00\x01\x02\xff" * 50, "validation_failed", "neither text nor an image"),
        ("empty.txt", b"  \n", "validation_failed", "no text"),
        ("broken.pdf", b"%PDF-1.4\nnothing", "validation_failed", "cannot be read"),
        ("long.txt", b"x" * ((1 << 20) + 1), "payload_too_large", ""),
    ],
)
def test_content_that_no_model_reads_is_a_failure(
    world: World, profile: Provider, name: str, content: bytes, code_: str, words: str
) -> None:
    document = store(world, name, content)
    done = world.run([{"id": "ask", "llm": {"profile": "default", "prompt": "?", "documents": [document]}}])
    assert (done.error["code"], done.error["failure_class"]) == (code_, "validation")
    assert words in done.error["message"]
    assert profile.requests == []


def test_documents_of_another_tenant_and_texts_as_pictures_are_refused(world: World, profile: Provider) -> None:
    documents = world.flow.runner.tools.documents
    theirs = documents.store_document(world.other, NewDocument("theirs.txt"), b"secret").id
    done = world.run([{"id": "ask", "llm": {"profile": "default", "prompt": "?", "documents": [theirs]}}])
    assert done.error["code"] == "not_found"
    mine = store(world, "mine.txt", b"text")
    done = world.run([{"id": "ask", "llm": {"profile": "default", "prompt": "?", "images": [mine]}}])
    assert "not an image" in done.error["message"]
    assert profile.requests == []


def test_code_gives_documents_to_a_model_by_its_grant_to_read_them(world: World, profile: Provider) -> None:
    letter, scan = store(world, "letter.txt", b"Dear Ann"), store(world, "scan.png", PICTURE)
    body = """
const told = async (more: any) => {
  try { return await api.llm.generate({profile: 'default', prompt: '?', ...more}); } catch (e: any) { return e.message; }
};
return [await told({documents: [input.letter]}), await told({images: [input.scan]}), await told({images: [input.inline]})];
"""
    payload = {"letter": letter, "scan": scan, "inline": f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"}
    denied = world.finish(world.start(world.publish([code("a", body)], grants={"llm": ["default"]}), payload))
    sentence = "this step has no grant to read documents; add grants: documents: [read]"
    assert denied.output == [sentence, sentence, "hello"]
    grants = {"llm": ["default"], "documents": ["read"]}
    granted = world.finish(world.start(world.publish([code("a", body)], grants=grants), payload))
    assert granted.output == ["hello"] * 3
    assert "Document 1:\nDear Ann" in profile.requests[1].texts[0]
