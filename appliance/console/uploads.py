"""A form with files (RFC 7578), read as it comes: texts into memory, files onto the disk."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.sansio.multipart import Data, Epilogue, Field, File, MultipartDecoder, NeedData

from appliance.blobs.receiving import Received, Receiver
from appliance.core.errors import InvalidRequest, PayloadTooLarge

MOST_PARTS, MOST_FILES = 1000, 50
TEXT_BYTES = 1 << 20
_PIECE, _HELD = 1 << 20, 4 << 20


@dataclass(frozen=True)
class SentFile:
    """A file of a form: its field, the sender's name for it, and what has arrived; gone when the request has been answered."""

    field: str
    name: str
    received: Received


class FormReader:
    """Takes the pieces of a body; `finish` answers texts and files, `discard` gives the files up."""

    def __init__(self, receiver: Callable[[], Receiver], boundary: str, most_bytes: int) -> None:
        if not boundary or not boundary.isascii():
            raise InvalidRequest("the form cannot be read; open the page here and send it again")
        self._make, self._most = receiver, most_bytes
        self._decoder = MultipartDecoder(boundary.encode(), _HELD, max_parts=MOST_PARTS)
        self._texts: list[tuple[str, bytes]] = []
        self._size = 0
        self._open: tuple[File, Receiver] | None = None
        self._files: list[SentFile] = []

    def feed(self, body: bytes | None) -> None:
        """A piece of the body; None ends it."""
        for start in range(0, len(body or b"x"), _PIECE):
            for event in self._events(None if body is None else body[start : start + _PIECE]):
                if isinstance(event, File):
                    if len(self._files) >= MOST_FILES:
                        raise PayloadTooLarge(f"a form takes {MOST_FILES} files at most; send the others after them")
                    self._open = (event, self._make())
                elif isinstance(event, Field):
                    self._texts.append((str(event.name), b""))
                elif isinstance(event, Data):
                    self._take(event)

    def _events(self, piece: bytes | None) -> Iterator[object]:
        try:
            self._decoder.receive_data(piece)
            while not isinstance(event := self._decoder.next_event(), NeedData):
                yield event
                if isinstance(event, Epilogue):
                    return
        except RequestEntityTooLarge as error:
            raise PayloadTooLarge("the form has too many parts; send fewer at once") from error
        except (ValueError, AttributeError) as error:  # bytes that make no sense to the decoder
            raise InvalidRequest("the form was cut off or is none; open the page here and send it again") from error

    def _take(self, data: Data) -> None:
        if self._open is None:
            name, before = self._texts[-1]
            self._texts[-1] = (name, before + data.data)
            self._size += len(data.data)
            if self._size > TEXT_BYTES:
                raise PayloadTooLarge(f"the texts of a form have at most {TEXT_BYTES >> 20} MiB together")
            return
        part, receiver = self._open
        receiver.write(data.data)
        if receiver.size > self._most:
            raise PayloadTooLarge(f"a file has at most {self._most >> 20} MiB here")
        if not data.more_data:
            self._open = None
            if receiver.size or part.filename:
                self._files.append(SentFile(str(part.name), part.filename or "file", receiver.finish(durable=False)))
            else:  # nothing was chosen
                receiver.discard()

    def finish(self) -> tuple[dict[str, list[str]], list[SentFile]]:
        self.feed(None)
        texts: dict[str, list[str]] = {}
        for name, data in self._texts:
            texts.setdefault(name, []).append(data.decode("utf8", "replace"))
        return texts, self._files

    def discard(self) -> None:
        if self._open is not None:
            self._open[1].discard()
        for file in self._files:
            file.received.discard()
