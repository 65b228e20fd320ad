"""Previews: a picture or a page of a PDF as a small picture, painted once in a worker process and kept.

Markup is never painted, SVG and HTML least of all: it may fetch and run.
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from appliance.blobs import Blobs
from appliance.core.database import db
from appliance.core.errors import ApplianceError, NotFound, Overloaded
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.documents.records import Content, Document
from appliance.documents.service import Documents
from appliance.formats import Bounds, FormatFailed, Formats, Work

from . import preview_rows, quarantine
from .preview_rows import Frame, Outcome

MEDIA_TYPE = "image/webp"
WIDTHS = (160, 320, 640, 1280)
LARGEST = 64 << 20
MOST_BYTES = 8 << 20
MOST_PAGE = 5_000
WAITING = 8  # requests; each holds a thread of the edge
PATIENCE_SECONDS = 30.0
_BOUNDS = Bounds(60, 512, MOST_BYTES)
# Which one decoder may look at a content, by its media type.
_KINDS = {
    "application/pdf": "PDF", "image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP", "image/gif": "GIF",
    "image/tiff": "TIFF", "image/bmp": "BMP",
}  # fmt: skip
_OF_PAGES = ("PDF", "TIFF")


class PreviewFailed(ApplianceError):
    """The content is broken, locked or too large to be shown; `reason` says which, as a code."""

    code, status = "preview_failed", 422


@dataclass(frozen=True)
class Preview:
    """A picture of the media type MEDIA_TYPE, and what it is of."""

    sha256: str
    data: bytes
    revision: int


def has_preview(media_type: str) -> bool:
    """Whether contents of this type are painted."""
    return media_type in _KINDS


def documents_with_preview(scope: TenantScope, documents: Iterable[Document], width: int) -> set[str]:
    """The ids of those whose newest content can be shown, as far as anybody knows who has not looked into it."""
    likely = [each for each in documents if has_preview(each.media_type) and each.size <= LARGEST]
    refused = preview_rows.refused(scope, [each.sha256 for each in likely], width)
    refused |= quarantine.kept_back_of(scope, [each.sha256 for each in likely])
    return {each.id for each in likely if each.sha256 not in refused}


class Previews:
    """Paints one at a time, so that those who look at many take no more than one worker from executions."""

    def __init__(self, blobs: Blobs, formats: Formats, documents: Documents) -> None:
        self._blobs, self._formats, self._documents = blobs, formats, documents
        self._waiting = threading.BoundedSemaphore(WAITING)
        self._turn = threading.Lock()

    def get_preview(self, scope: TenantScope, document_id: str, page: int, width: int, revision: int | None = None) -> Preview:
        """The page at one of WIDTHS, of the newest content unless told; NotFound when contents of its kind or that page have
        none, PreviewFailed, Overloaded, Quarantined."""
        content = self._documents.open_content(scope, document_id, revision)
        kind = _KINDS.get(content.media_type)
        if kind is None:
            raise NotFound(
                Sentence("contents of the type %(media_type)s have no preview; download it instead", media_type=content.media_type)
            )
        if page != 1 and (kind not in _OF_PAGES or not 1 <= page <= MOST_PAGE):
            raise NotFound(Sentence("the content has no page %(page)s", page=page))
        frame = Frame(content.sha256, page, width)
        outcome = preview_rows.find(scope, frame) or self._paint(scope, content, frame)
        if outcome.sha256 is None:
            raise PreviewFailed(
                Sentence("there is no preview: %(reason)s", reason=outcome.reason), extra={"reason": outcome.refusal}
            )
        return Preview(outcome.sha256, self._blobs.read_whole(scope, outcome.sha256, MOST_BYTES), content.revision)

    def _paint(self, scope: TenantScope, content: Content, frame: Frame) -> Outcome:
        if content.size > LARGEST:
            return Outcome(refusal="content_too_large", reason=f"contents of more than {LARGEST >> 20} MiB are not shown")
        with self._own_turn():
            known = preview_rows.find(scope, frame)  # by whoever had the turn before
            if known is not None:
                return known
            try:
                data = self._perform(scope, content, frame)
            except FormatFailed as failed:
                return self._refused(scope, frame, failed)
            stored = self._blobs.put(scope, data)

            def keep() -> None:
                self._blobs.hold(scope, stored.sha256)
                preview_rows.keep(scope, frame, Outcome(stored.sha256, stored.size))

            db.write(keep)
            return Outcome(stored.sha256, stored.size)

    @contextmanager
    def _own_turn(self) -> Iterator[None]:
        if not self._waiting.acquire(blocking=False):
            raise _busy()
        try:
            if not self._turn.acquire(timeout=PATIENCE_SECONDS):
                raise _busy()
            try:
                yield
            finally:
                self._turn.release()
        finally:
            self._waiting.release()

    def _perform(self, scope: TenantScope, content: Content, frame: Frame) -> bytes:
        with self._formats.scratch() as copy:
            for piece in self._blobs.read_checked(scope, content.sha256):
                copy.write(piece)
            copy.flush()
            options = {"kind": _KINDS[content.media_type], "page": frame.page, "width": frame.width}
            with self._formats.perform(Work("preview", options, [copy]), _BOUNDS) as answer:
                return answer.output.read()

    def _refused(self, scope: TenantScope, frame: Frame, failed: FormatFailed) -> Outcome:
        """Kept when the content is to blame; what hangs on the moment is tried again by the next request."""
        if failed.code == "page_missing":
            raise NotFound(failed.message) from failed
        if failed.failure_class == "system":
            raise _busy() from failed
        outcome = Outcome(refusal=failed.code, reason=failed.message)
        if failed.failure_class != "timeout":
            db.write(lambda: preview_rows.keep(scope, frame, outcome))
        return outcome


def _busy() -> Overloaded:
    return Overloaded("the preview could not be made now; try again in a moment", headers={"Retry-After": "5"})
