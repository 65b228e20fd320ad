"""A hundred thousand documents in realistic folders, written straight into the database; most of them share one content."""

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

from appliance.core import clock, ids
from appliance.core.database import db, full_text
from appliance.core.scope import TenantScope
from appliance.documents.candidates import NAMES
from tests.bench.filling import insert

DOCUMENTS, MINUTE = 100_000, 60_000
WORDS = ("invoice", "contract", "delivery", "offer", "reminder", "catalogue", "carrier", "customs", "complaint", "receipt")
_TYPES = ("application/pdf",) * 6 + ("image/png", "text/csv")


def fill_documents(scope: TenantScope, count: int = DOCUMENTS) -> None:
    """Half of them in one folder, a third in 10,000 customer folders, the rest by year and month, and some in none; a tenth
    have an extracted text."""
    rng = random.Random(7)  # noqa: S311  made-up figures
    now = clock.now_ms()
    documents = [_document(scope, rng, number, now - MINUTE * (count - number)) for number in range(count)]
    texts = list(_texts(scope, rng, [row for row in documents if row[6] != documents[0][6]]))
    db.write(partial(_write, documents, texts))


def _document(scope: TenantScope, rng: random.Random, number: int, at: int) -> tuple[Any, ...]:
    word = rng.choice(WORDS)
    sha256 = f"{number if number % 10 == 1 else 0:064x}"
    return (
        scope.tenant_id, ids.new("doc"), f"{word} {number:06} of customer {number % 977}.pdf", _folder(number),
        rng.choice(_TYPES), 20_000 + number, sha256, 1, 1, '{"year":2026}', at, "user:usr_bench", at,
    )  # fmt: skip


def _folder(number: int) -> str:
    share = number % 100
    if share < 50:
        return "archive/scans"
    if share < 83:
        return f"customers/{number * 7 % 10_000:05}/{2020 + number % 7}"
    return f"books/{2020 + number % 7}/{number % 12 + 1:02}" if share < 99 else ""


def _texts(scope: TenantScope, rng: random.Random, documents: list[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    for document in documents:
        text = " ".join(rng.choices(WORDS, k=40)) + f" number {document[2][-12:-4]}"
        yield scope.tenant_id, document[6], "text/plain", "ready", "", document[6], len(text), text, text, 1, 0


def _write(documents: list[tuple[Any, ...]], texts: list[tuple[Any, ...]]) -> None:
    ((last,),) = db.rows("SELECT COALESCE(MAX(number), 0) FROM document")
    names = "tenant_id id name folder media_type size sha256 revision version metadata created_at created_by updated_at number"
    insert("document", names, [(*row, number) for number, row in enumerate(documents, last + 1)])
    NAMES.add("number > ?", (last,))
    _write_revisions(documents)
    columns = "tenant_id content media_type state reason sha256 size beginning words tries next_try_at"
    before = int(db.rows("SELECT COALESCE(MAX(id), 0) FROM document_text")[0][0])
    insert("document_text", columns, texts)
    full_text.add_range("document_text", before + 1, int(db.rows("SELECT MAX(id) FROM document_text")[0][0]))


def _write_revisions(documents: list[tuple[Any, ...]]) -> None:
    """The only revision of each document, and the contents, whose bytes nobody reads."""
    blobs = {row[6]: (row[0], row[6], row[5], row[6], row[10]) for row in documents}
    insert("blob", "tenant_id sha256 size place touched_at", list(blobs.values()))
    columns = "tenant_id document_id number sha256 size media_type comment created_at created_by"
    revisions = [(row[0], row[1], 1, row[6], row[5], row[4], "", row[10], row[11]) for row in documents]
    insert("document_revision", columns, revisions)
