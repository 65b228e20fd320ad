"""The texts of contents: which are wanted, which are there, and where searched words stand in them.

Each content of a tenant is read once, whatever documents hold it.  The row is the wish; `reading` fulfils it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, cast

from peewee import SQL

from appliance.blobs import Blobs
from appliance.core import clock
from appliance.core.database import db, full_text
from appliance.core.errors import ApplianceError, NotFound
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.documents.models import DocumentRevision

from .quarantine import SQL_NOT_KEPT_BACK, kept_back
from .text_models import TextRow

TextState = Literal["none", "pending", "ready", "failed"]
TABLE = "document_text"
UNREADABLE = "content_unreadable"  # a failure without a code of its own
SEARCHED_CHARACTERS = 200_000
SEARCHED_BYTES = 400_000  # of words; a server keeps no more than a megabyte of them in one index entry
_BEFORE, _AFTER = 60, 140  # characters around a found word

# How a content becomes text, by its media type.
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
    """What is known of a content's text; `reason` says why there is none, and `code` how reading it failed."""

    state: TextState
    reason: str
    characters: int
    pieces: Iterator[bytes] | None = None
    code: str = ""


def is_readable(media_type: str) -> bool:
    """Whether contents of this type have a text that is read."""
    return media_type in PLAIN or media_type in OFFICE or media_type == PDF or media_type in PICTURES


def want_text(scope: TenantScope, content: str, media_type: str) -> None:
    """Inside the write that refers to the content: have its text read, unless it was or is about to be."""
    if is_readable(media_type):
        db.execute(
            "INSERT INTO document_text (tenant_id, content, media_type, is_scan, state, reason, size, tries, next_try_at) "
            "VALUES (?, ?, ?, ?, 'pending', '', 0, 0, ?) ON CONFLICT (tenant_id, content) DO NOTHING",
            (scope.tenant_id, content, media_type, int(media_type in PICTURES), clock.now_ms()),
        )


def forget_unused(scope: TenantScope, contents: Iterable[str]) -> None:
    """Inside the write that has deleted a document: the texts that no revision has any more."""
    for content in contents:
        if not scope.select(DocumentRevision).where(DocumentRevision.sha256 == content).exists():
            full_text.remove(TABLE, "tenant_id = ? AND content = ?", (scope.tenant_id, content))
            scope.delete(TextRow).where(TextRow.content == content).execute()


def forget_all(scope: TenantScope) -> None:
    """Inside the write that deletes the tenant."""
    full_text.remove(TABLE, "tenant_id = ?", (scope.tenant_id,))
    scope.delete(TextRow).execute()


def states(scope: TenantScope, contents: Iterable[str]) -> Mapping[str, TextState]:
    """The state of each content's text."""
    known = scope.select(TextRow, TextRow.content, TextRow.state).where(TextRow.content.in_(sorted(set(contents))))
    return {row.content: cast(TextState, row.state) for row in known}


def get_text(scope: TenantScope, blobs: Blobs, content: str) -> Text:
    """The text of a content."""
    columns = (TextRow.state, TextRow.reason, TextRow.code, TextRow.sha256, TextRow.size)
    row = scope.select(TextRow, *columns).where(TextRow.content == content).get_or_none()
    if row is None:
        return Text("none", "contents of this kind are not read", 0)
    pieces = blobs.read(scope, row.sha256) if row.state == "ready" else None
    return Text(cast(TextState, row.state), row.reason, row.size, pieces, row.code)


@dataclass(frozen=True)
class ReadText:
    """A text as it is kept: the sha256 of its blob, its size, and its beginning with the words of that."""

    sha256: str
    size: int
    beginning: str
    words: str

    @classmethod
    def of(cls, sha256: str, text: str) -> "ReadText":
        """Takes its time: not inside a write."""
        beginning = text[:SEARCHED_CHARACTERS]
        return cls(sha256, len(text), beginning, _words(beginning))


def store_text(scope: TenantScope, row_id: int, read: ReadText) -> None:
    """Inside a write, in which the blob is held."""
    changes: dict[str, Any] = {
        "state": "ready", "reason": "", "sha256": read.sha256, "size": read.size, "beginning": read.beginning, "words": read.words,
    }  # fmt: skip
    if scope.update(TextRow, **changes).where(TextRow.id == row_id, TextRow.state == "pending").execute():
        full_text.add(TABLE, row_id)


def _words(text: str) -> str:
    joined = " ".join(word for _, _, word in full_text.words_in(text))
    while len(joined.encode()) > SEARCHED_BYTES:
        joined = joined[: len(joined) * 3 // 4].rpartition(" ")[0]
    return joined


def found_in(scope: TenantScope, words: list[str]) -> Any:
    """The contents whose text has all the words, and which may be read, as a part of a query."""
    fulfilled, wanted = full_text.condition(TABLE, words)
    free = SQL_NOT_KEPT_BACK.format(table=TABLE)
    sql = f"(SELECT content FROM document_text WHERE tenant_id = ? AND {free} AND {fulfilled})"  # noqa: S608  ours
    return SQL(db.database.obj.statement(sql), (scope.tenant_id, wanted))


def snippets(scope: TenantScope, contents: Iterable[str], words: list[str]) -> dict[str, str]:
    """Where the first of the words stands in each content, as HTML: escaped, every found word in `<mark>`."""
    known = scope.select(TextRow, TextRow.content, TextRow.beginning, TextRow.words)
    of_these = (TextRow.content.in_(sorted(set(contents))), TextRow.content.not_in(kept_back(scope)))
    rows = known.where(*of_these, TextRow.state == "ready")
    shown = ((row.content, _snippet(row.beginning, row.words, words)) for row in rows.iterator())
    return {content: snippet for content, snippet in shown if snippet}


def _snippet(text: str, joined: str, words: list[str]) -> str:
    """The text around the first word that is found; the n-th of the joined words is the n-th of the text."""
    places = [at for word in words if (at := f" {joined}".find(f" {word}")) >= 0]
    if not places:
        return ""
    number = joined.count(" ", 0, min(places))
    begin = full_text.begin_of(text, number)
    first, last = max(0, begin - _BEFORE), min(len(text), begin + _AFTER)
    part = text[first:last]
    parts, at = ["…" if first else ""], 0
    for start, end, word in full_text.words_in(part):
        if any(word.startswith(each) for each in words):
            parts += [escape(part[at:start]), "<mark>", escape(part[start:end]), "</mark>"]
            at = end
    return "".join([*parts, escape(part[at:]), "…" if last < len(text) else ""])


class TextFailed(ApplianceError):
    """The content is encrypted, broken or too large to be read; `reason` says which, as a code."""

    code, status = "text_failed", 422


def refuse_missing(text: Text) -> None:
    """NotFound or TextFailed unless there is a text, or one is being read."""
    if text.state == "none":
        raise NotFound(Sentence("there is no text of this content: %(reason)s", reason=text.reason))
    if text.state == "failed":
        raise TextFailed(
            Sentence("the text of this content cannot be read: %(reason)s", reason=text.reason),
            extra={"reason": text.code or UNREADABLE},
        )
