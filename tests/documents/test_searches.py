"""Searches that an index serves answer the same documents as a scan of all, however names change."""

import itertools
from collections.abc import Sequence

import pytest

from appliance.core.database import db, full_text
from appliance.core.database.substrings import SubstringIndex
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.documents import candidates
from appliance.documents.candidates import NAMES
from appliance.documents.records import DocumentFilter
from appliance.documents.service import Changes, Documents, NewDocument, clean_name
from appliance.tenants import service as tenants

on_sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
UNUSUAL = (
    "Straße 9.txt", "STRASSE 9.txt", "ÄRGER.txt", "ärger.txt", "A\u0308rger.txt", "İstanbul.txt", "\u0131stanbul.txt",
    "Ωmega ΣΑΣ.txt", "ωmega σας.txt", "100% sure.txt", "100x sure.txt", "a_b_c.txt", "axbxc.txt", "it's (here) [now].txt",
    "x AND y OR z.txt", "请求 合同 2026.txt", "😀😀😀.txt", "e\u0301e\u0301e\u0301.txt", "Ǆungla.txt", "ﬁnale.txt",
    "Kelvin \u212a.txt", "aaaa.txt", "aAaA.txt", "ab", "a", "near(x, y).txt", "x-y+z^{1}.txt",
    "inner   spaces.txt",
)  # fmt: skip
SEARCHED = (
    "straße", "strasse", "STRASSE", "ärg", "ÄRG", "arg", "rger", "istanbul", "İst", "σας", "ΣΑΣ", "mega", "100%", "100",
    "0% s", "a_b", "b_c", "it's", "'s (", "(here)", "[now]", "AND", "x and y", "or z", "合同", "合同 2", "请求 合同", "😀",
    "😀😀😀", "😀😀😀😀", "e\u0301e", "\u0301\u0301\u0301", "ǆung", "ﬁn", "fin", "kelvin \u212a", "kelvin k", "aaa", "AAAA",
    "aaaaa", "ab", "a", ".txt", "TXT", "near(", "^{1}", "y+z", "-y", "   ", "r   s", "nothing", "*", '"', '"""', "txt\\",
    "%%%", "___", "x" * 70, "1", "body",
)  # fmt: skip


def store(documents: Documents, scope: TenantScope, name: str, folder: str = "") -> str:
    content = f"text of {name}".encode()
    return documents.store_document(scope, NewDocument(clean_name(name), folder=folder), content).id


def revise_repeatedly(documents: Documents, scope: TenantScope) -> None:
    """Two contents that have many revisions of one document, and one of another document each."""
    contents = [documents.store_content(scope, text) for text in (b"one text", b"other text")]
    first = documents.create_document(scope, NewDocument("revised.txt"), contents[0])
    for number in range(1, 12):
        documents.add_revision(scope, first.id, contents[number % 2])
    for number, content in enumerate(contents):
        documents.create_document(scope, NewDocument(f"same content {number}.txt"), content)


def extract_texts() -> None:
    """Every second text is ready, and has its own number among its words; one is quarantined."""
    for (number,) in db.rows("SELECT id FROM document_text"):
        if number % 2:
            db.execute("UPDATE document_text SET state = 'ready', words = ? WHERE id = ?", (f"body nr{number} of", number))
            full_text.add("document_text", number)
    db.execute(
        "INSERT INTO document_scan (tenant_id, sha256, state, finding, scanned_at) SELECT tenant_id, content, 'infected', '', 0 "
        "FROM document_text WHERE words LIKE '%nr3 %'"
    )


def names_found(documents: Documents, scope: TenantScope, filters: DocumentFilter, limit: int = 500) -> list[str]:
    """The names on all pages, newest first."""
    names, cursor = [], None
    while True:
        page = documents.list_documents(scope, filters, PageRequest(limit, cursor))
        names += [each.name for each in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return names


def filters_of(text: str) -> list[DocumentFilter]:
    filters = [DocumentFilter(name=text), DocumentFilter(name=text, under="a"), DocumentFilter(name=text, media_type="text/*")]
    if any(letter.isalnum() for letter in text):
        filters += [DocumentFilter(search=text), DocumentFilter(search=text, under="a/b"), DocumentFilter(search=text, tag="x")]
    return filters


@pytest.mark.parametrize("many", [1, 4, 1_000])
def test_an_index_finds_what_a_scan_finds(
    documents: Documents, acme: TenantScope, globex: TenantScope, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = itertools.cycle(["", "a", "a/b", "a/b/c", "ab"])
    for name in UNUSUAL:
        store(documents, acme, name, next(folders))
        store(documents, globex, name)
    revise_repeatedly(documents, acme)
    db.write(extract_texts)
    words = ["body", "body nr9", *(f"nr{number}" for number in range(1, 65, 2))]
    filters = [each for text in (*SEARCHED, *words) for each in filters_of(text)]
    monkeypatch.setattr(candidates, "MANY", many)
    by_index = [names_found(documents, acme, each) for each in filters]
    limited = [names_found(documents, acme, each, limit=2) for each in filters[::7]]
    monkeypatch.setattr(candidates, "find_candidates", lambda *_: None)
    by_scan = [names_found(documents, acme, each) for each in filters]
    assert dict(zip(map(str, filters), by_index, strict=True)) == dict(zip(map(str, filters), by_scan, strict=True))
    assert limited == by_scan[::7]
    assert sum(map(len, by_scan)) > 100


@on_sqlite
def test_the_index_finds_few_documents_of_many(documents: Documents, acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the tests above would compare two scans."""
    monkeypatch.setattr(candidates, "MANY", 5)
    expected = store(documents, acme, "contract 0815.txt")
    for number in range(9):
        store(documents, acme, f"contract {number}.txt")

    def candidates_of(**filters: str) -> Sequence[str] | None:
        return candidates.find_candidates(acme, DocumentFilter(**filters), None)  # type: ignore[arg-type]

    assert candidates_of(name="T 0815") == [expected]
    assert candidates_of(name="contract") is candidates_of(name="08") is candidates_of(media_type="text/*") is None
    assert candidates_of(media_type="audio/*") == candidates_of(under="contracts") == []


def numbers_by_name(documents: Documents, scope: TenantScope) -> dict[str, list[int] | None]:
    names = [name for (name,) in db.rows("SELECT DISTINCT name FROM document WHERE tenant_id = ?", (scope.tenant_id,))]
    return {name: NAMES.find_numbers(name, 99) for name in names}


@on_sqlite
def test_the_index_has_the_present_names(
    documents: Documents, acme: TenantScope, globex: TenantScope, deletions: None
) -> None:
    first, second = store(documents, acme, "first name.txt", "a/b"), store(documents, acme, "second name.txt", "a/b")
    store(documents, globex, "third name.txt")
    documents.update_document(acme, first, Changes(name="another.txt"))
    documents.update_document(acme, first, Changes(folder="a/c", tags=["x"]))
    documents.move_folder(acme, "a", "z")
    assert NAMES.find_numbers("first name", 9) == []
    assert names_found(documents, acme, DocumentFilter(name="another")) == ["another.txt"]
    documents.delete_document(acme, second)
    assert NAMES.find_numbers("second", 9) == []
    fourth = store(documents, acme, "fourth name.txt")
    assert numbers_by_name(documents, acme) == {
        name: [number]
        for name, number in db.rows("SELECT name, number FROM document WHERE tenant_id = ?", (acme.tenant_id,))
    }
    documents.delete_document(acme, fourth)
    tenants.delete_tenant("acme")
    assert (NAMES.find_numbers("another", 9), len(NAMES.find_numbers("third name", 9) or ())) == ([], 1)


@on_sqlite
def test_a_failed_write_leaves_the_index_as_it_was(documents: Documents, acme: TenantScope) -> None:
    document = store(documents, acme, "before.txt")

    def rename() -> None:
        documents.update_document(acme, document, Changes(name="after.txt"))
        raise ValueError("undo")

    with pytest.raises(ValueError, match="undo"):
        db.write(rename)
    assert (len(NAMES.find_numbers("before", 9) or ()), NAMES.find_numbers("after", 9)) == (1, [])


@on_sqlite
def test_a_part_that_has_no_trigram_is_not_looked_up(two_tenants: None) -> None:
    index = SubstringIndex("document", "number", "name")
    assert index.find_numbers("ab", 9) is index.find_numbers("a\0b", 9) is None
    assert index.find_numbers('a"b', 9) == []
