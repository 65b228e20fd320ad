"""Reading the texts of contents in the background, in worker processes, again when that failed: what is quick one at a time, and
apart from it what has to be recognised."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from appliance.blobs import BlobDamaged, Blobs
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import NotFound, Overloaded, StorageFull
from appliance.core.periodic import Periodic
from appliance.core.scope import TenantScope
from appliance.formats import Bounds, Cancelled, FormatFailed, Formats, Work
from appliance.tenants import system_scope

from .quarantine import SQL_NOT_KEPT_BACK
from .text_models import TextRow
from .texts import OFFICE, PICTURES, PLAIN, ReadText, is_readable, store_text

log = logging.getLogger(__name__)

LARGEST = 64 << 20
PLAIN_BYTES = 4 << 20
MOST_CHARACTERS = 4_000_000
MOST_TRIES = 5
LEASE_MS = 10 * 60_000
RETRY_MS = 60_000
SCANNED_PAGES = 20
LEAST_CHARACTERS = 8  # of a page that is no scan, on average
_FREE = SQL_NOT_KEPT_BACK.format(table="document_text")  # no reader is shown what a scanner holds back
_UNWANTED = {code: None for code in range(32) if code not in (9, 10)} | dict.fromkeys(range(0xD800, 0xE000))
_TEXT = Bounds(60, 256, 64 << 20)
_SCAN = Bounds(480, 512, 64 << 20)  # with _TEXT before it less than the lease


@dataclass(frozen=True)
class Wish:
    """A text that this process reads now."""

    scope: TenantScope
    row_id: int
    content: str
    media_type: str
    is_scan: bool
    tries: int


class ScanFound(Exception):
    """The content has next to no text of its own: it waits with those that have to be recognised."""


class TextReader:
    """Reads what is wanted, a quick text and a scan at a time: a flood of documents takes no worker from executions but these."""

    def __init__(self, blobs: Blobs, formats: Formats) -> None:
        self._blobs, self._formats = blobs, formats
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Give up what is being read; it is read again later."""
        self._stopped.set()

    def read_all(self) -> int:
        """Read every text that is due; answers how many."""
        return self.read_quick() + self.read_scans()

    def read_quick(self) -> int:
        """Read what has a text of its own; answers how many were read or are found to be scans."""
        return self._read_due(is_scan=False)

    def read_scans(self) -> int:
        """Recognise the text of pictures and scans; answers of how many."""
        return self._read_due(is_scan=True)

    def _read_due(self, *, is_scan: bool) -> int:
        count = 0
        while not self._stopped.is_set() and (wish := _claim(is_scan=is_scan)) is not None:
            self._fulfil(wish)
            count += 1
        return count

    def _fulfil(self, wish: Wish) -> None:
        try:
            text = self._read(wish).translate(_UNWANTED)[:MOST_CHARACTERS]
            stored = self._blobs.put(wish.scope, text.encode())

            read = ReadText.of(stored.sha256, text)

            def keep() -> None:
                self._blobs.hold(wish.scope, stored.sha256)
                store_text(wish.scope, wish.row_id, read)

            db.write(keep)
        except ScanFound:
            _settle(wish, is_scan=1, next_try_at=clock.now_ms(), tries=0)
        except Cancelled:
            _settle(wish, next_try_at=clock.now_ms(), tries=wish.tries - 1)
        except (StorageFull, Overloaded) as error:  # which says nothing of the content: it is read when there is room again
            _settle(wish, reason=error.message, next_try_at=clock.now_ms() + RETRY_MS, tries=wish.tries - 1)
        except FormatFailed as failed:
            self._note(wish, failed)
        except (BlobDamaged, NotFound) as error:
            _settle(wish, state="failed", reason=error.message)
        except Exception:
            log.exception("the text of a content was not read")
            _again(wish, "the appliance failed to read it; its log has the reason")

    def _note(self, wish: Wish, failed: FormatFailed) -> None:
        if failed.code == "ocr_not_installed":
            _settle(wish, state="none", reason=failed.message)
        elif failed.failure_class == "system":
            _again(wish, failed.message)
        else:
            _settle(wish, state="failed", reason=failed.message, code=failed.code)

    def _read(self, wish: Wish) -> str:
        if wish.media_type in PLAIN:
            return _decoded(self._beginning(wish))
        if wish.media_type in OFFICE:
            return str(next(self._records(wish, "extract", {"kind": OFFICE[wish.media_type]}, _TEXT), ""))
        if wish.media_type in PICTURES:
            return _joined(self._records(wish, "ocr", {}, _SCAN))
        return self._pdf_text(wish)

    def _beginning(self, wish: Wish) -> bytes:
        return b"".join(self._blobs.read(wish.scope, wish.content, 0, PLAIN_BYTES))

    def _pdf_text(self, wish: Wish) -> str:
        """The text layer; of pages that have next to none, what can be recognised, when it is the turn of scans."""
        pages = list(self._records(wish, "parse.pdf", {}, _TEXT))
        text = _joined(iter(pages))
        if len("".join(text.split())) >= LEAST_CHARACTERS * len(pages):
            return text
        if not wish.is_scan:
            raise ScanFound
        chosen = {"pages": f"1-{min(len(pages), SCANNED_PAGES)}"}
        try:
            return _joined(self._records(wish, "ocr", chosen, _SCAN))
        except FormatFailed as failed:
            if failed.code == "ocr_not_installed" and text.strip():
                return text
            raise

    def _records(self, wish: Wish, operation: str, options: dict[str, Any], bounds: Bounds) -> Iterator[Any]:
        with ExitStack() as stack:
            content = stack.enter_context(self._formats.scratch())
            for piece in self._blobs.read_checked(wish.scope, wish.content):
                content.write(piece)
            content.flush()
            work = Work(operation, options, [content])
            answer = stack.enter_context(self._formats.perform(work, bounds, self._stopped.is_set))
            yield from answer.records()


class Reading(Periodic):
    """Has a reader read whatever is wanted, soon after it is; `read` is one of its methods."""

    def __init__(self, name: str, reader: TextReader, read: Callable[[], int]) -> None:
        super().__init__(name, 1.0, read)
        self._reader = reader

    def signal(self) -> None:
        self._reader.stop()
        super().signal()


def make_readings(blobs: Blobs, formats: Formats) -> list[Reading]:
    """Scans take seconds a page: what is quick does not wait behind them."""
    reader = TextReader(blobs, formats)
    return [Reading("document-texts", reader, reader.read_quick), Reading("document-scans", reader, reader.read_scans)]


def _claim(*, is_scan: bool) -> Wish | None:
    """The next text that is due, for this process for as long as its lease lasts."""
    while True:
        now = clock.now_ms()
        due = db.rows(
            "SELECT tenant_id, id, content, media_type, tries, next_try_at FROM document_text "  # noqa: S608
            f"WHERE state = 'pending' AND is_scan = ? AND next_try_at <= ? AND {_FREE} ORDER BY next_try_at, id LIMIT 1",
            (int(is_scan), now),
        )
        if not due:
            return None
        tenant_id, row_id, content, media_type, tries, seen = due[0]
        wish = Wish(system_scope(tenant_id), row_id, content, media_type, is_scan, tries + 1)
        refusal = _refusal(wish)
        changes: dict[str, Any] = {"tries": wish.tries, "next_try_at": now + LEASE_MS, **refusal}
        if _lease(wish, seen, changes) and not refusal:
            return wish


def _refusal(wish: Wish) -> dict[str, str]:
    """What becomes of a wish that is not fulfilled; one that has ended every process that tried is given up."""
    if wish.tries > MOST_TRIES:
        return {"state": "failed", "reason": "it was tried again and again without an end"}
    if not is_readable(wish.media_type):
        return {"state": "none", "reason": "contents of this kind are not read"}
    if _size(wish) > LARGEST:
        return {"state": "none", "reason": f"contents of more than {LARGEST >> 20} MiB are not read"}
    return {}


def _lease(wish: Wish, seen: int, changes: Mapping[str, Any]) -> bool:
    """Whether no other process was quicker."""
    same = (TextRow.id == wish.row_id) & (TextRow.next_try_at == seen) & (TextRow.state == "pending")
    return bool(db.write(lambda: wish.scope.update(TextRow, **changes).where(same).execute()))


def _size(wish: Wish) -> int:
    found = db.rows("SELECT size FROM blob WHERE tenant_id = ? AND sha256 = ?", (wish.scope.tenant_id, wish.content))
    return int(found[0][0]) if found and wish.media_type not in PLAIN else 0


def _again(wish: Wish, reason: str) -> None:
    if wish.tries >= MOST_TRIES:
        _settle(wish, state="failed", reason=reason)
    else:
        _settle(wish, reason=reason, next_try_at=clock.now_ms() + RETRY_MS * 2**wish.tries)


def _settle(wish: Wish, **changes: Any) -> None:
    same = (TextRow.id == wish.row_id) & (TextRow.state == "pending")
    db.write(lambda: wish.scope.update(TextRow, **changes).where(same).execute())


def _decoded(data: bytes) -> str:
    """The text of bytes that are said to be one: by its mark, else UTF-8, else the old encoding of the West."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if len(data) == PLAIN_BYTES and error.start >= len(data) - 3:  # cut in the middle of a character
            return data[: error.start].decode("utf-8-sig")
        return data.decode("cp1252", "replace")


def _joined(records: Iterator[Any]) -> str:
    return "\n\n".join(str(record["text"]) for record in records)
