"""The text of documents is extracted in the background and searchable within one tenant."""

import io
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageFont

from appliance.blobs import GRACE_MS, Blobs, LocalPlaces
from appliance.core import clock
from appliance.core.database import db, full_text
from appliance.core.errors import ApplianceError, InvalidRequest, Overloaded, StorageFull
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.documents.contents import scanning, text_extraction, texts
from appliance.documents.contents.quarantine import Quarantined
from appliance.documents.contents.text_extraction import LEASE_MS, MOST_TRIES, RETRY_MS, TextReader
from appliance.documents.service import DocumentFilter, Documents, NewDocument
from appliance.documents.sharing.delivery import DeliveryPolicy
from appliance.formats import Bounds, Formats, Settings, Work
from appliance.tenants import service as tenants
from tests.documents.test_shares import FakeReviews
from tests.formats.test_previews import locked_pdf

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
on_sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Formats]:
    formats = Formats(Settings(tmp_path_factory.mktemp("formats"), processes=2))
    yield formats
    formats.stop()


@pytest.fixture
def reader(blobs: Blobs, formats: Formats) -> TextReader:
    return TextReader(blobs, formats)


def store(documents: Documents, scope: TenantScope, name: str, data: bytes | str) -> str:
    return documents.store_document(scope, NewDocument(name), data if isinstance(data, bytes) else data.encode()).id


def search_names(documents: Documents, scope: TenantScope, search: str) -> list[str]:
    return [each.name for each in documents.list_documents(scope, DocumentFilter(search=search), PageRequest(sort="name")).items]


def text_of(documents: Documents, scope: TenantScope, document_id: str) -> str:
    pieces = documents.open_text(scope, document_id).pieces
    assert pieces is not None
    return b"".join(pieces).decode()


def state_of(documents: Documents, scope: TenantScope, document_id: str) -> tuple[str, str]:
    document, text = documents.get_document(scope, document_id), documents.open_text(scope, document_id)
    assert document.text_state == text.state
    return text.state, text.reason


def office(**members: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name.replace("__", "/") + ".xml", text)
    return out.getvalue()


def test_quarantined_contents_are_neither_read_nor_found(
    documents: Documents, blobs: Blobs, reader: TextReader, acme: TenantScope, globex: TenantScope
) -> None:
    """Whether its text was read before or not; another tenant's equal content is its own matter."""
    letter = "Kündigung zum Jahresende"
    read = store(documents, acme, "read.txt", letter)
    store(documents, globex, "theirs.txt", letter)
    reader.read_all()
    unread = store(documents, acme, "unread.txt", f"{letter}, noch einmal")
    contents = [documents.get_document(acme, each).sha256 for each in (read, unread)]
    for sha256 in contents:
        db.write(partial(scanning._set_state, acme, sha256, "quarantined", "strange"))
    assert reader.read_all() == 0
    assert (search_names(documents, acme, "Kündigung"), search_names(documents, globex, "Kündigung")) == ([], ["theirs.txt"])
    assert search_names(documents, acme, "read.txt") == ["read.txt", "unread.txt"]  # by their names, so that they can be deleted
    assert texts.snippets(acme, contents, ["kundigung", "kündigung"]) == {}
    delivery = DeliveryPolicy(blobs, FakeReviews())
    for each in (read, unread):
        assert delivery.find(acme, each, "latest") is None
        for look in (documents.open_content, documents.open_text):
            with pytest.raises(Quarantined):
                look(acme, each)
    for sha256 in contents:
        db.write(partial(scanning._delete_row, acme, sha256))
    assert reader.read_all() == 1
    assert search_names(documents, acme, "Kündigung") == ["read.txt", "unread.txt"]
    assert delivery.find(acme, read, "latest") is not None


def test_texts_are_found_by_their_words(documents: Documents, reader: TextReader, acme: TenantScope, globex: TenantScope) -> None:
    first = store(documents, acme, "a.txt", "Die Müllabfuhr kommt am Donnerstag. Rechnung 2026-0815 über 100 €.")
    store(documents, acme, "b.csv", "number;customer\n10248;Vins et alcools Chevalier\n")
    store(documents, globex, "c.txt", "Rechnung des Nachbarn")
    assert documents.get_document(acme, first).text_state == "pending"
    assert search_names(documents, acme, "Rechnung") == []
    assert reader.read_all() == 3
    assert documents.get_document(acme, first).text_state == "ready"
    for search, names in (
        ("rechnung", ["a.txt"]), ("RECH", ["a.txt"]), ("mullabfuhr donnerstag", ["a.txt"]), ("0815", ["a.txt"]),
        ("chevalier vins", ["b.csv"]), ("chevalier rechnung", []), ("echnung", []), ("a.t", ["a.txt"]), ("nachbarn", []),
        ("10248", ["b.csv"]),
    ):  # fmt: skip
        assert search_names(documents, acme, search) == names, search
    assert search_names(documents, globex, "rechnung") == ["c.txt"]
    assert "€" in text_of(documents, acme, first)


@pytest.mark.parametrize(
    "search",
    [
        'x" OR "rechnung', "rechnung'; DROP TABLE document; --", "NEAR(a b)", "words : rechnung", "-rechnung*", "a AND NOT b",
        "'x' | 'rechnung':*", "!rechnung & (", "\\", "rechnung\x00", "%", "x" * 400,
    ],
)  # fmt: skip
def test_query_syntax_is_treated_as_words(documents: Documents, reader: TextReader, acme: TenantScope, search: str) -> None:
    store(documents, acme, "a.txt", "Rechnung")
    reader.read_all()
    with suppress(InvalidRequest):  # of no words, or too many
        assert search_names(documents, acme, search) in ([], ["a.txt"])
    assert search_names(documents, acme, "rechnung") == ["a.txt"]


def test_a_snippet_is_escaped_and_marked(documents: Documents, reader: TextReader, acme: TenantScope) -> None:
    document_id = store(documents, acme, "a.txt", "filler " * 50 + "<script>alert('x')</script> & Straße " + "end " * 100)
    reader.read_all()
    sha256 = documents.get_document(acme, document_id).sha256
    snippet = texts.snippets(acme, [sha256], full_text.parse_search("alert strasse"))[sha256]
    assert "&lt;script&gt;<mark>alert</mark>(&#x27;x&#x27;)&lt;/script&gt; &amp; <mark>Straße</mark>" in snippet
    assert (snippet[0], snippet[-1]) == ("…", "…")
    assert "<script" not in snippet
    assert texts.snippets(acme, [sha256], ["nowhere"]) == {}


def test_words_are_folded_for_search(
    documents: Documents, reader: TextReader, acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words are folded outside the single writer, and snippets fold only the words around a match."""
    document_id = store(documents, acme, "a.txt", "word " * 5_000 + "needle and " + "thread " * 100)
    folded: list[str] = []
    fold = full_text.fold

    def noting(word: str) -> str:
        folded.append(threading.current_thread().name)
        return fold(word)

    monkeypatch.setattr(full_text, "fold", noting)
    reader.read_all()
    assert len(folded) > 5_000
    assert "db-writer" not in folded
    sha256 = documents.get_document(acme, document_id).sha256
    folded.clear()
    snippet = texts.snippets(acme, [sha256], ["needle"])[sha256]
    assert snippet.startswith("…word word")
    assert "word <mark>needle</mark> and" in snippet
    assert len(folded) < 100


@on_sqlite
def test_html_and_office_documents_are_extracted(documents: Documents, reader: TextReader, acme: TenantScope) -> None:
    page = "<html><head><title>no</title></head><body><p>Hello <b>bold</b></p><script>var hidden</script><p>second</p>"
    html = store(documents, acme, "a.html", page)
    word = f"<w:document {W}><w:body><w:p><w:r><w:t>Dear </w:t></w:r><w:r><w:t>Ada</w:t></w:r></w:p></w:body></w:document>"
    docx = store(documents, acme, "a.docx", office(word__document=word))
    odt = store(documents, acme, "a.odt", office(content='<o xmlns:t="t"><t:p>Grace</t:p></o>'))
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><x>&b;</x>'
    evil = store(documents, acme, "evil.docx", office(word__document=bomb))
    broken = store(documents, acme, "broken.docx", b"PK\x03\x04 no archive")
    binary = store(documents, acme, "a.bin", b"\x00\x01\x02")
    reader.read_all()
    assert "Hello bold" in text_of(documents, acme, html)
    assert "hidden" not in text_of(documents, acme, html)
    assert text_of(documents, acme, docx).strip() == "Dear Ada"
    assert text_of(documents, acme, odt).strip() == "Grace"
    assert state_of(documents, acme, evil)[0] == "failed"
    assert "not a readable office document" in state_of(documents, acme, broken)[1]
    assert state_of(documents, acme, binary)[0] == "none"


@on_sqlite
def test_pdf_scans_and_bombs(documents: Documents, reader: TextReader, formats: Formats, acme: TenantScope, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# Quarterly report\n\nNorthwind Traders")
    with (tmp_path / "page.md").open("rb") as source:
        work = Work("convert", {"from": "markdown", "format": "pdf"}, [source])
        with formats.perform(work, Bounds(60, 256, 32 << 20)) as answer:
            pdf = store(documents, acme, "report.pdf", answer.output.read())
    picture = Image.new("L", (900, 200), 250)
    ImageDraw.Draw(picture).text((40, 60), "Total due 342.00", font=ImageFont.load_default(64), fill=20)
    scan, bomb = io.BytesIO(), io.BytesIO()
    picture.save(scan, "PNG")
    Image.new("1", (30_000, 30_000)).save(bomb, "PNG")
    scanned, exploding = store(documents, acme, "scan.png", scan.getvalue()), store(documents, acme, "bomb.png", bomb.getvalue())
    assert reader.read_all() == 3
    assert "Northwind Traders" in text_of(documents, acme, pdf)
    assert "342.00" in text_of(documents, acme, scanned)
    assert search_names(documents, acme, "total 342") == ["scan.png"]
    assert "million pixels" in state_of(documents, acme, exploding)[1]


ENCRYPTED_ODT = office(content="cipher", **{"META-INF__manifest": "<m><manifest:encryption-data/></m>"})


@on_sqlite
@pytest.mark.parametrize(("name", "data"), [("a.pdf", locked_pdf()), ("a.odt", ENCRYPTED_ODT)])
def test_encrypted_contents_are_explained(
    documents: Documents, reader: TextReader, acme: TenantScope, name: str, data: bytes
) -> None:
    document_id = store(documents, acme, name, data)
    reader.read_all()
    text = documents.open_text(acme, document_id)
    assert (text.state, text.code) == ("failed", "content_encrypted")
    assert "is encrypted" in text.reason
    assert "save a copy without a password" in text.reason
    with pytest.raises(texts.TextFailed) as caught:
        texts.check_available(text)
    assert caught.value.extra == {"reason": "content_encrypted"}


def test_quick_texts_do_not_wait_for_scans(
    documents: Documents, reader: TextReader, acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan was stored first; only extraction shows that a PDF is a scan."""
    blank = io.BytesIO()
    Image.new("L", (60, 40), 255).save(blank, "PDF")
    scan = store(documents, acme, "scan.pdf", blank.getvalue())
    has_begun, may_finish, records = threading.Event(), threading.Event(), TextReader._records

    def slow(self: TextReader, job: text_extraction.TextJob, operation: str, *more: Any) -> Any:
        if operation == "ocr":
            has_begun.set()
            assert may_finish.wait(30)
            return iter([{"text": "recognised"}])
        return records(self, job, operation, *more)

    monkeypatch.setattr(TextReader, "_records", slow)
    assert reader.read_quick() == 1
    recogniser = threading.Thread(target=reader.read_scans)
    recogniser.start()
    try:
        assert has_begun.wait(30)
        quick = store(documents, acme, "letter.odt", office(content='<o xmlns:t="t"><t:p>Grace</t:p></o>'))
        assert reader.read_quick() == 1
        assert documents.get_document(acme, quick).text_state == "ready"
        assert documents.get_document(acme, scan).text_state == "pending"
    finally:
        may_finish.set()
        recogniser.join(30)
    assert text_of(documents, acme, scan) == "recognised"


Later = Callable[[int], None]


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Later:
    now = clock.now_ms()
    return lambda ms: monkeypatch.setattr(clock, "now_ms", lambda: now + ms)


def test_a_text_is_extracted_by_one_process_until_its_lease_ends(
    documents: Documents, reader: TextReader, acme: TenantScope, later: Later
) -> None:
    document_id = store(documents, acme, "a.txt", "one")
    for tries in range(1, MOST_TRIES + 1):
        job = text_extraction._claim(is_scan=False)
        assert job is not None
        assert job.tries == tries
        assert reader.read_all() == 0
        later(tries * 2 * LEASE_MS)
    assert reader.read_all() == 0
    assert state_of(documents, acme, document_id)[0] == "failed"


def test_a_text_that_took_longer_than_its_lease_is_discarded(
    documents: Documents, reader: TextReader, acme: TenantScope, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    document_id = store(documents, acme, "a.txt", "one")

    def be_overtaken(self: TextReader, job: text_extraction.TextJob) -> str:
        later(LEASE_MS + 60_000)
        assert text_extraction._claim(is_scan=False) is not None
        return "late"

    with monkeypatch.context() as patched:
        patched.setattr(TextReader, "_read", be_overtaken)
        assert reader.read_all() == 1
    assert documents.get_document(acme, document_id).text_state == "pending"
    later(3 * LEASE_MS)
    assert reader.read_all() == 1
    assert text_of(documents, acme, document_id) == "one"


def test_an_internal_failure_is_retried_and_then_recorded(
    documents: Documents, reader: TextReader, acme: TenantScope, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    document_id = store(documents, acme, "a.txt", "one")
    missing = documents.open_content(acme, document_id).sha256
    (path,) = (path for path in Path(reader._blobs._places._folder).rglob(f"{missing}.*"))  # type: ignore[attr-defined]
    path.unlink()
    assert reader.read_all() == 1
    assert state_of(documents, acme, document_id)[0] == "failed"
    other = store(documents, acme, "b.txt", "two")
    with monkeypatch.context() as patched:
        patched.setattr(TextReader, "_read", lambda self, job: 1 // 0)
        assert reader.read_all() == 1
    assert documents.get_document(acme, other).text_state == "pending"
    assert reader.read_all() == 0
    later(LEASE_MS)
    assert reader.read_all() == 1
    assert text_of(documents, acme, other) == "two"


def test_a_full_store_costs_no_attempt(
    documents: Documents, reader: TextReader, acme: TenantScope, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    document_id = store(documents, acme, "a.txt", "\ufeffone")  # whose text is another content
    with monkeypatch.context() as patched:
        for number, error in enumerate((StorageFull, Overloaded) * MOST_TRIES):

            def fail(*_: object, error: type[ApplianceError] = error) -> None:
                raise error("no room")

            patched.setattr(LocalPlaces, "adopt_all", fail)
            later((number + 1) * 2 * RETRY_MS)
            assert reader.read_all() == 1
            assert state_of(documents, acme, document_id) == ("pending", "no room")
    later(8 * MOST_TRIES * RETRY_MS)
    assert reader.read_all() == 1
    assert text_of(documents, acme, document_id) == "one"


@pytest.mark.usefixtures("deletions")
def test_a_text_is_deleted_with_its_last_document(
    documents: Documents, reader: TextReader, blobs: Blobs, acme: TenantScope, globex: TenantScope, later: Later
) -> None:
    first, second = store(documents, acme, "a.txt", "rechnung"), store(documents, acme, "b.txt", "rechnung")
    theirs = store(documents, globex, "c.txt", "rechnung")
    assert reader.read_all() == 2
    documents.delete_document(acme, first)
    assert search_names(documents, acme, "rechnung") == ["b.txt"]
    documents.delete_document(acme, second)
    assert db.rows("SELECT count(*) FROM document_text WHERE tenant_id = 'acme'") == [(0,)]
    later(2 * GRACE_MS)
    assert text_of(documents, globex, theirs) == "rechnung"
    blobs.collect()
    assert text_of(documents, globex, theirs) == "rechnung", "the blob of a text is referred to"
    tenants.delete_tenant("globex")
    assert db.rows("SELECT count(*) FROM document_text") == [(0,)]
    again = store(documents, acme, "d.txt", "rechnung")
    reader.read_all()
    assert search_names(documents, acme, "rechnung") == ["d.txt"]
    assert text_of(documents, acme, again) == "rechnung"
    check_index()


def check_index() -> None:
    """The index matches the table and contains nothing of deleted rows."""
    if db.is_sqlite():
        db.write(lambda: db.execute("INSERT INTO document_text_index (document_text_index, rank) VALUES ('integrity-check', 1)"))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("Grüße".encode(), "Grüße"), ("Grüße".encode("cp1252"), "Grüße"), ("Grüße".encode("utf-16"), "Grüße"),
        ("\ufeffa\x00b\x1bc".encode(), "abc"), (b"", ""),
    ],
)  # fmt: skip
@on_sqlite
def test_plain_text_is_decoded(documents: Documents, reader: TextReader, acme: TenantScope, data: bytes, text: str) -> None:
    document_id = documents.create_document(acme, NewDocument("a.txt"), documents.store_content(acme, data))
    db.write(lambda: db.execute("UPDATE document_text SET media_type = 'text/plain'"))
    if document_id.media_type == "text/plain":
        reader.read_all()
        assert text_of(documents, acme, document_id.id) == text


def test_a_text_of_only_words_is_found_at_its_beginning(documents: Documents, reader: TextReader, acme: TenantScope) -> None:
    """The maximum of distinct words: PostgreSQL accepts no index entry of more than a megabyte."""
    words = " ".join(f"w{number:x}ÿ漢" for number in range(60_000))
    document_id: Any = store(documents, acme, "a.txt", words)
    reader.read_all()
    assert documents.get_document(acme, document_id).text_state == "ready"
    assert search_names(documents, acme, "w0y") == search_names(documents, acme, "w1ff") == ["a.txt"]
