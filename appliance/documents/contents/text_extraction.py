"""Extracts the texts of contents in the background, in worker processes, with retries. Quick formats and slow text recognition
(OCR) have separate queues."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from appliance.blobs import BlobDamaged, Blobs, stored_sizes
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import NotFound, Overloaded, StorageFull
from appliance.core.leases import LeaseLost
from appliance.core.scheduling import LONG, PeriodicJob, Rest
from appliance.core.scope import TenantScope
from appliance.formats import Bounds, Cancelled, FormatFailed, Formats, Work
from appliance.tenants import system_scope

from .quarantine import SQL_NOT_QUARANTINED
from .texts import LEASES, OFFICE, PICTURES, PLAIN, ExtractedText, is_readable, store_text

log = logging.getLogger(__name__)

LARGEST = 64 << 20
PLAIN_BYTES = 4 << 20
MOST_CHARACTERS = 4_000_000
MOST_TRIES = 5
LEASE_MS = 10 * 60_000
RETRY_MS = 60_000
SCANNED_PAGES = 20
LEAST_CHARACTERS = 8  # per page on average; a page with fewer is a scan
_NOT_QUARANTINED = SQL_NOT_QUARANTINED.format(table="document_text")  # quarantined contents are not given to a reader
_REMOVED_CHARACTERS = {code: None for code in range(32) if code not in (9, 10)} | dict.fromkeys(range(0xD800, 0xE000))
_TEXT_BOUNDS = Bounds(60, 256, 64 << 20)
_OCR_BOUNDS = Bounds(480, 512, 64 << 20)  # together with _TEXT less than the lease


@dataclass(frozen=True)
class TextJob:
    """A text that this process is extracting."""

    scope: TenantScope
    row_id: int
    content: str
    media_type: str
    is_scan: bool
    tries: int
    lease: int


class NeedsOcr(Exception):
    """The content has almost no text of its own, so it is queued for OCR."""


class TextReader:
    """Extracts pending texts, at most one quick text and one scan at a time, so that many documents do not occupy the workers
    of executions."""

    def __init__(self, blobs: Blobs, formats: Formats) -> None:
        self._blobs, self._formats = blobs, formats
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Cancel the current extraction; it is repeated later."""
        self._stopped.set()

    def read_all(self) -> int:
        """Extract every pending text; returns how many."""
        return self.read_quick() + self.read_scans()

    def read_quick(self) -> int:
        """Extract texts that need no OCR; returns how many were extracted or found to need OCR."""
        return self._read_due(is_scan=False)

    def read_scans(self) -> int:
        """Recognize the text of images and scans; returns of how many."""
        return self._read_due(is_scan=True)

    def _read_due(self, *, is_scan: bool) -> int:
        count = 0
        while not self._stopped.is_set() and (job := _claim(is_scan=is_scan)) is not None:
            self._process(job)
            count += 1
        return count

    def _process(self, job: TextJob) -> None:
        try:
            self._extract(job)
        except LeaseLost:
            log.warning("the text of %s took longer than its lease, or is no longer needed; it is discarded", job.content)

    def _extract(self, job: TextJob) -> None:
        try:
            text = self._read(job).translate(_REMOVED_CHARACTERS)[:MOST_CHARACTERS]
            stored = self._blobs.put(job.scope, text.encode())

            read = ExtractedText.of(stored.sha256, text)

            def save() -> None:
                self._blobs.hold(job.scope, stored.sha256)
                store_text(job.scope, job.row_id, job.lease, read)

            db.write(save)
        except LeaseLost:
            raise
        except NeedsOcr:
            _update(job, is_scan=1, next_try_at=clock.now_ms(), tries=0)
        except Cancelled:
            _update(job, next_try_at=clock.now_ms(), tries=job.tries - 1)
        except (StorageFull, Overloaded) as error:  # temporary: retried when there is room again
            _update(job, reason=error.message, next_try_at=clock.now_ms() + RETRY_MS, tries=job.tries - 1)
        except FormatFailed as failure:
            self._save_failure(job, failure)
        except (BlobDamaged, NotFound) as error:
            _update(job, state="failed", reason=error.message)
        except Exception:
            log.exception("the text of a content could not be extracted")
            _retry_later(job, "an unexpected error; see the appliance log")

    def _save_failure(self, job: TextJob, error: FormatFailed) -> None:
        if error.code == "ocr_not_installed":
            _update(job, state="none", reason=error.message)
        elif error.failure_class == "system":
            _retry_later(job, error.message)
        else:
            _update(job, state="failed", reason=error.message, code=error.code)

    def _read(self, job: TextJob) -> str:
        if job.media_type in PLAIN:
            return _decode(self._read_start(job))
        if job.media_type in OFFICE:
            return str(next(self._records(job, "extract", {"kind": OFFICE[job.media_type]}, _TEXT_BOUNDS), ""))
        if job.media_type in PICTURES:
            return _join_texts(self._records(job, "ocr", {}, _OCR_BOUNDS))
        return self._pdf_text(job)

    def _read_start(self, job: TextJob) -> bytes:
        return b"".join(self._blobs.read(job.scope, job.content, 0, PLAIN_BYTES))

    def _pdf_text(self, job: TextJob) -> str:
        """The text layer; pages with almost no text are recognized, if this is an OCR job."""
        pages = list(self._records(job, "parse.pdf", {}, _TEXT_BOUNDS))
        text = _join_texts(iter(pages))
        if len("".join(text.split())) >= LEAST_CHARACTERS * len(pages):
            return text
        if not job.is_scan:
            raise NeedsOcr
        options = {"pages": f"1-{min(len(pages), SCANNED_PAGES)}"}
        try:
            return _join_texts(self._records(job, "ocr", options, _OCR_BOUNDS))
        except FormatFailed as error:
            if error.code == "ocr_not_installed" and text.strip():
                return text
            raise

    def _records(self, job: TextJob, operation: str, options: dict[str, Any], bounds: Bounds) -> Iterator[Any]:
        with ExitStack() as stack:
            file = stack.enter_context(self._formats.scratch())
            for piece in self._blobs.read_checked(job.scope, job.content):
                file.write(piece)
            file.flush()
            work = Work(operation, options, [file])
            answer = stack.enter_context(self._formats.perform(work, bounds, self._stopped.is_set))
            yield from answer.records()


class TextExtraction(PeriodicJob):
    """Periodically runs `read`, a method of the reader."""

    def __init__(self, name: str, reader: TextReader, read: Callable[[], int]) -> None:
        super().__init__(name, 1.0, read, LONG, rest=Rest(next_due=LEASES.next_due))
        self._reader = reader

    def signal(self) -> None:
        self._reader.stop()
        super().signal()


def build_text_tasks(blobs: Blobs, formats: Formats) -> list[TextExtraction]:
    """Separate tasks for quick texts and scans, because a scan takes seconds per page."""
    reader = TextReader(blobs, formats)
    return [
        TextExtraction("document-texts", reader, reader.read_quick),
        TextExtraction("document-scans", reader, reader.read_scans),
    ]


def _claim(*, is_scan: bool) -> TextJob | None:
    """Claim the next pending text for the duration of the lease; None when there is none."""
    while True:
        now = clock.now_ms()
        columns = "tenant_id, id, content, media_type, tries, next_try_at"
        due = LEASES.list_due(columns, now, 1, f"is_scan = ? AND {_NOT_QUARANTINED}", (int(is_scan),))
        if not due:
            return None
        tenant_id, row_id, content, media_type, tries, seen_at = due[0]
        job = TextJob(
            scope=system_scope(tenant_id), row_id=row_id, content=content, media_type=media_type, is_scan=is_scan, tries=tries + 1,
            lease=now + LEASE_MS,
        )
        refusal = _refusal(job)
        if _try_claim(job, seen_at, refusal) and not refusal:
            return job


def _refusal(job: TextJob) -> dict[str, str]:
    """The changes for a text that is not extracted, or an empty dict. One that ended every process that tried it is given up."""
    if job.tries > MOST_TRIES:
        return {"state": "failed", "reason": "it did not finish in several attempts"}
    if not is_readable(job.media_type):
        return {"state": "none", "reason": "the text of this type of content is not extracted"}
    if _size(job) > LARGEST:
        return {"state": "none", "reason": f"the text of contents of more than {LARGEST >> 20} MiB is not extracted"}
    return {}


def _try_claim(job: TextJob, seen_at: int, refusal: Mapping[str, Any]) -> bool:
    """Claim the text, unless another process was faster."""
    changes = {"tries": job.tries, **refusal}
    return db.write(lambda: LEASES.claim(_key(job), seen_at, until=job.lease, changes=changes))


def _size(job: TextJob) -> int:
    return 0 if job.media_type in PLAIN else stored_sizes(job.scope, [job.content]).get(job.content, 0)


def _retry_later(job: TextJob, reason: str) -> None:
    if job.tries >= MOST_TRIES:
        _update(job, state="failed", reason=reason)
    else:
        _update(job, reason=reason, next_try_at=clock.now_ms() + RETRY_MS * 2**job.tries)


def _update(job: TextJob, **changes: Any) -> None:
    db.write(lambda: LEASES.settle(_key(job), job.lease, changes))


def _key(job: TextJob) -> tuple[str, int]:
    return job.scope.tenant_id, job.row_id


def _decode(data: bytes) -> str:
    """Decode text by its byte order mark, else as UTF-8, else as Windows-1252."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if len(data) == PLAIN_BYTES and error.start >= len(data) - 3:  # cut in the middle of a character
            return data[: error.start].decode("utf-8-sig")
        return data.decode("cp1252", "replace")


def _join_texts(records: Iterator[Any]) -> str:
    return "\n\n".join(str(record["text"]) for record in records)
