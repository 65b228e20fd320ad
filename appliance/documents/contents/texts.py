"""The texts of contents: which are pending or ready, and where searched words occur in them.

Each content of a tenant is extracted once, however many documents have it. A row with the state pending is the job; `reading`
processes it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, cast

from peewee import SQL, NodeList

from appliance.blobs import Blobs
from appliance.core import clock
from appliance.core.database import db, full_text
from appliance.core.database.id_lists import is_listed
from appliance.core.errors import ApplianceError, NotFound
from appliance.core.leases import LeaseTable
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.documents.models import DocumentRevision

from .quarantine import SQL_NOT_QUARANTINED, quarantined
from .text_models import TextRow

TextState = Literal["none", "pending", "ready", "failed"]
TABLE = "document_text"
LEASES = LeaseTable(TextRow, ("tenant_id", "id"), lease="next_try_at", running="state = 'pending'")
UNREADABLE = "content_unreadable"  # for a failure without its own code
SEARCHED_CHARACTERS = 200_000
SEARCHED_BYTES = 400_000  # of words; PostgreSQL stores at most a megabyte of them in one index entry
_BEFORE, _AFTER = 60, 140  # characters around a match

# How the text of a content is extracted, by media type.
PLAIN = frozenset(
    {
        "text/plain", "text/csv", "text/tab-separated-values", "text/markdown", "application/json", "application/x-ndjson",
        "application/yaml", "application/xml", "message/rfc822", "text/calendar",
    }
)  # fmt: skip
OFFICE = {
    "text/html": "html",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.oasis.opendocument.text": "odf",
    "application/vnd.oasis.opendocument.spreadsheet": "odf",
    "application/vnd.oasis.opendocument.presentation": "odf",
}
PDF = "application/pdf"
PICTURES = frozenset({"image/png", "image/jpeg", "image/tiff", "image/webp", "image/gif"})


@dataclass(frozen=True)
class Text:
    """The text of a content; `reason` says why there is none, and `code` how the extraction failed."""

    state: TextState
    reason: str
    characters: int
    pieces: Iterator[bytes] | None = None
    code: str = ""


def is_readable(media_type: str) -> bool:
    """Whether the text of contents of this type is extracted."""
    return media_type in PLAIN or media_type in OFFICE or media_type == PDF or media_type in PICTURES


def request_text(scope: TenantScope, content: str, media_type: str) -> None:
    """Inside the write that refers to the content: queue the extraction of its text, unless that was done before."""
    if is_readable(media_type):
        db.execute(
            "INSERT INTO document_text (tenant_id, content, media_type, is_scan, state, reason, size, tries, next_try_at) "
            "VALUES (?, ?, ?, ?, 'pending', '', 0, 0, ?) ON CONFLICT (tenant_id, content) DO NOTHING",
            (scope.tenant_id, content, media_type, int(media_type in PICTURES), clock.now_ms()),
        )


def forget_unused(scope: TenantScope, contents: Iterable[str]) -> None:
    """Inside the write that deleted a document: delete the texts of contents that no revision uses."""
    for content in contents:
        if not scope.select(DocumentRevision).where(DocumentRevision.sha256 == content).exists():
            full_text.remove(TABLE, "tenant_id = ? AND content = ?", (scope.tenant_id, content))
            scope.delete(TextRow).where(TextRow.content == content).execute()


def forget_all(scope: TenantScope) -> None:
    """Inside the write that deletes the tenant: delete all its texts."""
    full_text.remove(TABLE, "tenant_id = ?", (scope.tenant_id,))
    scope.delete(TextRow).execute()


def states(scope: TenantScope, contents: Iterable[str]) -> Mapping[str, TextState]:
    """The state of each content's text."""
    rows = scope.select(TextRow, TextRow.content, TextRow.state).where(is_listed("content", sorted(set(contents))))
    return {row.content: cast(TextState, row.state) for row in rows}


def get_text(scope: TenantScope, blobs: Blobs, content: str) -> Text:
    """The text of a content and its state."""
    columns = (TextRow.state, TextRow.reason, TextRow.code, TextRow.sha256, TextRow.size)
    row = scope.select(TextRow, *columns).where(TextRow.content == content).get_or_none()
    if row is None:
        return Text("none", "contents of this kind are not read", 0)
    pieces = blobs.read(scope, row.sha256) if row.state == "ready" else None
    return Text(cast(TextState, row.state), row.reason, row.size, pieces, row.code)


@dataclass(frozen=True)
class ExtractedText:
    """A text to be stored: the sha256 of its blob, its size, and its beginning with the words of that."""

    sha256: str
    size: int
    beginning: str
    words: str

    @classmethod
    def of(cls, sha256: str, text: str) -> "ExtractedText":
        """Build from the text; slow, so not inside a write."""
        beginning = text[:SEARCHED_CHARACTERS]
        return cls(sha256, len(text), beginning, _words(beginning))


def store_text(scope: TenantScope, row_id: int, lease: int, extracted: ExtractedText) -> None:
    """Inside a write that holds the blob: store the text extracted under this lease. LeaseLost."""
    changes: dict[str, Any] = {
        "state": "ready", "reason": "", "sha256": extracted.sha256, "size": extracted.size, "beginning": extracted.beginning,
        "words": extracted.words,
    }  # fmt: skip
    LEASES.settle((scope.tenant_id, row_id), lease, changes)
    full_text.add(TABLE, row_id)


def _words(text: str) -> str:
    joined = " ".join(word for _, _, word in full_text.iterate_words(text))
    while len(joined.encode()) > SEARCHED_BYTES:
        joined = joined[: len(joined) * 3 // 4].rpartition(" ")[0]
    return joined


@dataclass(frozen=True)
class TextMatches:
    """The readable contents whose text has all the words; None if there may be many."""

    words: list[str]
    contents: Sequence[str] | None


def find_matches(scope: TenantScope, words: list[str], many: int) -> TextMatches:
    """The contents with all the words, unless `many` texts or more have them, those of other tenants included."""
    ids = full_text.find_ids(TABLE, words, 0, many)
    if len(ids) >= many:
        return TextMatches(words, None)
    # Without an index of the tenant, which SQLite prefers to the ids.
    of_tenant = f"COALESCE(tenant_id, '') = ? AND {SQL_NOT_QUARANTINED.format(table=TABLE)}"
    sql = f"SELECT content FROM document_text WHERE {of_tenant} AND id IN ({', '.join('?' * len(ids)) or 'NULL'})"  # noqa: S608
    return TextMatches(words, [str(content) for (content,) in db.rows(sql, (scope.tenant_id, *ids))])


def is_matching(scope: TenantScope, matches: TextMatches, content: Any) -> Any:
    """The condition that the column `content` has one of the contents.

    Of many, none is listed: each row is examined by itself, so that a query in some order ends early.
    """
    if matches.contents is not None:
        return is_listed(content.column_name, matches.contents)
    readable = f"tenant_id = ? AND {SQL_NOT_QUARANTINED.format(table=TABLE)}"
    subquery, pattern = full_text.matching_ids(TABLE, matches.words)
    text = _sql(f"(SELECT id FROM document_text WHERE {readable} AND content =", scope.tenant_id)  # noqa: S608
    return NodeList((text, content, _sql(f") IN {subquery}", pattern)), parens=True)


def _sql(sql: str, *params: object) -> SQL:
    return SQL(db.database.obj.statement(sql), params)


def snippets(scope: TenantScope, contents: Iterable[str], words: list[str]) -> dict[str, str]:
    """An HTML excerpt around the first match in each content: escaped, with each matching word in `<mark>`."""
    query = scope.select(TextRow, TextRow.content, TextRow.beginning, TextRow.words)
    conditions = (is_listed("content", sorted(set(contents))), TextRow.content.not_in(quarantined(scope)))
    rows = query.where(*conditions, TextRow.state == "ready")
    excerpts = ((row.content, _snippet(row.beginning, row.words, words)) for row in rows.iterator())
    return {content: snippet for content, snippet in excerpts if snippet}


def _snippet(text: str, joined: str, words: list[str]) -> str:
    """The text around the first match; the n-th of the joined words is the n-th word of the text."""
    positions = [at for word in words if (at := f" {joined}".find(f" {word}")) >= 0]
    if not positions:
        return ""
    number = joined.count(" ", 0, min(positions))
    begin = full_text.find_word_start(text, number)
    first, last = max(0, begin - _BEFORE), min(len(text), begin + _AFTER)
    part = text[first:last]
    parts, at, searched = ["…" if first else ""], 0, tuple(words)
    for start, end, word in full_text.iterate_words(part):
        if word.startswith(searched):
            parts += [escape(part[at:start]), "<mark>", escape(part[start:end]), "</mark>"]
            at = end
    return "".join([*parts, escape(part[at:]), "…" if last < len(text) else ""])


class TextFailed(ApplianceError):
    """The content is encrypted, damaged or too large for its text to be extracted; `reason` is a code for which."""

    code, status = "text_failed", 422


def check_available(text: Text) -> None:
    """NotFound or TextFailed unless the text is ready or pending."""
    if text.state == "none":
        raise NotFound(Sentence("this content has no text: %(reason)s", reason=text.reason))
    if text.state == "failed":
        raise TextFailed(
            Sentence("the text of this content could not be extracted: %(reason)s", reason=text.reason),
            extra={"reason": text.code or UNREADABLE},
        )
