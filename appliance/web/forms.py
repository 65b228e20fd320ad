"""Parses a `multipart/form-data` body (RFC 7578) as a stream: texts are kept in memory, files are written to disk."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.sansio.multipart import Data, Epilogue, Field, File, MultipartDecoder, NeedData

from appliance.blobs import ReceivedFile, Receiver
from appliance.core.errors import InvalidRequest, PayloadTooLarge
from appliance.core.sentences import Sentence

_PIECE = 1 << 20
_BUFFER_BYTES = 4 << 20  # The decoder's buffer must hold a piece of the body and the headers of a part.


@dataclass(frozen=True)
class FormLimits:
    """Maximum numbers of parts and of files among them; maximum bytes of all texts and headers together, and of one file."""

    parts: int
    files: int
    text_bytes: int
    file_bytes: int


@dataclass(frozen=True)
class SentFile:
    """An uploaded file: its form field, the client's name and media type, and the received content, owned by the caller."""

    field: str
    name: str
    media_type: str | None
    received: ReceivedFile


class FormReader:
    """Parses a form from the pieces of its body, on one thread at a time.

    InvalidRequest and PayloadTooLarge are raised as early as possible.  `finish` returns the texts in order and the files,
    without empty file fields; `discard` deletes what has been received.  A subclass may refuse a part in `accept`.
    """

    def __init__(self, receiver: Callable[[], Receiver], boundary: str, limits: FormLimits) -> None:
        if not boundary or not boundary.isascii():
            raise InvalidRequest("send the form as multipart/form-data, with a boundary in the Content-Type header")
        self._make, self._limits = receiver, limits
        self._decoder = MultipartDecoder(boundary.encode(), _BUFFER_BYTES, max_parts=limits.parts)
        self._last = f"\r\n--{boundary}--".encode()
        self._pending = b""
        self._texts: list[tuple[str, bytes]] = []
        self._texts_size = 0
        self._files: list[SentFile] = []
        self._open: tuple[File, Receiver] | None = None

    def accept(self, name: str, *, is_file: bool) -> None:
        """Called at the start of each part; a subclass may raise here to refuse it."""

    def feed(self, body: bytes) -> None:
        """Parse the next piece of the body."""
        for start in range(0, len(body), _PIECE):
            self._read(self._hold_back_boundary(self._pending + body[start : start + _PIECE]))

    def _hold_back_boundary(self, data: bytes) -> bytes:
        """The data without a tail that may be the start of a boundary, which is kept for the next piece.

        Otherwise the decoder would count a CR of a boundary as a byte of the file (werkzeug issue 3285).
        """
        at = data.rfind(b"\r", max(0, len(data) - len(self._last) + 1))
        keeps = at >= 0 and self._last.startswith(data[at:])
        self._pending = data[at:] if keeps else b""
        return data[:at] if keeps else data

    def _read(self, piece: bytes | None) -> None:
        for event in self._events(piece):
            if isinstance(event, Field | File):
                self._begin(event)
            elif isinstance(event, Data):
                self._add_data(event)

    def _events(self, piece: bytes | None) -> Iterator[object]:
        try:
            self._decoder.receive_data(piece)
            while not isinstance(event := self._decoder.next_event(), NeedData):
                yield event
                if isinstance(event, Epilogue):
                    return
        except RequestEntityTooLarge as error:
            message = Sentence(
                "the form has more than %(parts)s parts, or headers that are too long; split it into several forms",
                parts=self._limits.parts,
            )
            raise PayloadTooLarge(message) from error
        except (ValueError, AttributeError) as error:  # The decoder raises either for malformed data.
            raise InvalidRequest("the form is incomplete or not valid multipart/form-data; send it again") from error

    def _begin(self, part: Field | File) -> None:
        if not part.name:
            raise InvalidRequest("a part of the form has no name; name every part")
        self.accept(part.name, is_file=isinstance(part, File))
        self._count(sum(len(name) + len(value) for name, value in part.headers))
        if isinstance(part, Field):
            self._texts.append((part.name, b""))
            return
        if len(self._files) >= self._limits.files:
            raise PayloadTooLarge(
                Sentence("the form has too many files; the maximum is %(files)s, so send the others separately",
                         files=self._limits.files)
            )
        self._open = (part, self._make())

    def _add_data(self, data: Data) -> None:
        if self._open is None:
            name, before = self._texts[-1]
            self._texts[-1] = (name, before + data.data)
            self._count(len(data.data))
            return
        part, receiver = self._open
        receiver.write(data.data)
        if receiver.size > self._limits.file_bytes:
            raise PayloadTooLarge(
                Sentence("the file is too large; the maximum is %(file_bytes)s KiB", file_bytes=self._limits.file_bytes >> 10)
            )
        if not data.more_data:
            if receiver.size or part.filename:
                media_type = part.headers.get("Content-Type")
                self._files.append(SentFile(part.name, part.filename, media_type, receiver.finish()))
            else:
                receiver.discard()
            self._open = None

    def _count(self, size: int) -> None:
        """Add to the size of the texts; names and headers count as well, because they too are kept in memory."""
        self._texts_size += size
        if self._texts_size > self._limits.text_bytes:
            most = self._limits.text_bytes >> 10
            raise PayloadTooLarge(Sentence("the texts of the form are too large; the maximum is %(most)s KiB in total", most=most))

    def finish(self) -> tuple[list[tuple[str, str]], list[SentFile]]:
        self._read(self._pending)
        self._read(None)
        try:
            return [(name, data.decode()) for name, data in self._texts], self._files
        except UnicodeDecodeError as error:
            raise InvalidRequest("the form is not encoded in UTF-8; send it as UTF-8") from error

    def discard(self) -> None:
        if self._open is not None:
            self._open[1].discard()
        for file in self._files:
            file.received.discard()
