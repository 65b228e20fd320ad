"""Previews: small pictures of images and PDF pages, rendered once in a worker process and stored.

Markup (SVG and HTML) is never rendered, because it may load resources and run code.
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
from .preview_rows import PreviewKey, PreviewResult

MEDIA_TYPE = "image/webp"
WIDTHS = (160, 320, 640, 1280)
LARGEST = 64 << 20
MOST_BYTES = 8 << 20
MOST_PAGE = 5_000
MAX_WAITING = 8  # waiting requests; each holds a thread of the edge
WAIT_SECONDS = 30.0
_BOUNDS = Bounds(60, 512, MOST_BYTES)
# The only decoder allowed for a content, by media type.
_DECODERS = {
    "application/pdf": "PDF", "image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP", "image/gif": "GIF",
    "image/tiff": "TIFF", "image/bmp": "BMP",
}  # fmt: skip
_MULTI_PAGE = ("PDF", "TIFF")


class PreviewFailed(ApplianceError):
    """The content is damaged, encrypted or too large to render; `reason` is a code for which."""

    code, status = "preview_failed", 422


@dataclass(frozen=True)
class Preview:
    """A picture of the type MEDIA_TYPE, and the revision it shows."""

    sha256: str
    data: bytes
    revision: int


def has_preview(media_type: str) -> bool:
    """Whether contents of this type can be rendered."""
    return media_type in _DECODERS


def documents_with_preview(scope: TenantScope, documents: Iterable[Document], width: int) -> set[str]:
    """The ids of documents whose newest content probably has a preview, judged without opening it."""
    likely = [document for document in documents if has_preview(document.media_type) and document.size <= LARGEST]
    refused = preview_rows.list_refused(scope, [document.sha256 for document in likely], width)
    refused |= quarantine.list_quarantined(scope, [document.sha256 for document in likely])
    return {document.id for document in likely if document.sha256 not in refused}


class Previews:
    """Renders one preview at a time, so that they never occupy more than one worker process."""

    def __init__(self, blobs: Blobs, formats: Formats, documents: Documents) -> None:
        self._blobs, self._formats, self._documents = blobs, formats, documents
        self._waiting = threading.BoundedSemaphore(MAX_WAITING)
        self._lock = threading.Lock()

    def get_preview(self, scope: TenantScope, document_id: str, page: int, width: int, revision: int | None = None) -> Preview:
        """The preview of a page at one of WIDTHS, of the newest revision by default. NotFound when the type has no previews or
        the page does not exist; PreviewFailed, Overloaded, Quarantined."""
        content = self._documents.open_content(scope, document_id, revision)
        decoder = _DECODERS.get(content.media_type)
        if decoder is None:
            raise NotFound(
                Sentence("contents of the type %(media_type)s have no preview; download it instead", media_type=content.media_type)
            )
        if page != 1 and (decoder not in _MULTI_PAGE or not 1 <= page <= MOST_PAGE):
            raise NotFound(Sentence("the document has no page %(page)s", page=page))
        key = PreviewKey(content.sha256, page, width)
        result = preview_rows.find(scope, key) or self._render(scope, content, key)
        if result.sha256 is None:
            raise PreviewFailed(
                Sentence("there is no preview: %(reason)s", reason=result.reason), extra={"reason": result.refusal}
            )
        return Preview(result.sha256, self._blobs.read_whole(scope, result.sha256, MOST_BYTES), content.revision)

    def _render(self, scope: TenantScope, content: Content, key: PreviewKey) -> PreviewResult:
        if content.size > LARGEST:
            return PreviewResult(refusal="content_too_large", reason=f"contents of more than {LARGEST >> 20} MiB have no preview")
        with self._exclusive():
            existing = preview_rows.find(scope, key)  # by the previous holder of the lock
            if existing is not None:
                return existing
            try:
                data = self._run_worker(scope, content, key)
            except FormatFailed as error:
                return self._save_refusal(scope, key, error)
            stored = self._blobs.put(scope, data)

            def save() -> None:
                self._blobs.hold(scope, stored.sha256)
                preview_rows.save(scope, key, PreviewResult(stored.sha256, stored.size))

            db.write(save)
            return PreviewResult(stored.sha256, stored.size)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        if not self._waiting.acquire(blocking=False):
            raise _busy()
        try:
            if not self._lock.acquire(timeout=WAIT_SECONDS):
                raise _busy()
            try:
                yield
            finally:
                self._lock.release()
        finally:
            self._waiting.release()

    def _run_worker(self, scope: TenantScope, content: Content, key: PreviewKey) -> bytes:
        with self._formats.scratch() as file:
            for piece in self._blobs.read_checked(scope, content.sha256):
                file.write(piece)
            file.flush()
            options = {"kind": _DECODERS[content.media_type], "page": key.page, "width": key.width}
            with self._formats.perform(Work("preview", options, [file]), _BOUNDS) as answer:
                return answer.output.read()

    def _save_refusal(self, scope: TenantScope, key: PreviewKey, error: FormatFailed) -> PreviewResult:
        """Store the refusal if the content is the cause; temporary failures are tried again by the next request."""
        if error.code == "page_missing":
            raise NotFound(error.message) from error
        if error.failure_class == "system":
            raise _busy() from error
        result = PreviewResult(refusal=error.code, reason=error.message)
        if error.failure_class != "timeout":
            db.write(lambda: preview_rows.save(scope, key, result))
        return result


def _busy() -> Overloaded:
    return Overloaded("the preview could not be rendered now; try again in a moment", headers={"Retry-After": "5"})
