"""A `multipart/form-data` body (RFC 7578), read as it comes: texts into memory, files onto the disk."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.sansio.multipart import Data, Epilogue, Field, File, MultipartDecoder, NeedData

from appliance.blobs import Received, Receiver
from appliance.core.errors import InvalidRequest, PayloadTooLarge
from appliance.core.sentences import Sentence

_PIECE = 1 << 20
_HELD = 4 << 20  # a piece of the body and the headers of a part


@dataclass(frozen=True)
class FormLimits:
    """Most parts, files among them, bytes of all texts with the headers of every part, and bytes of one file."""

    parts: int
    files: int
    text_bytes: int
    file_bytes: int


@dataclass(frozen=True)
class SentFile:
    """A file of a form: its field, the sender's name and type for it, and what has arrived; it belongs to whoever reads it."""

    field: str
    name: str
    media_type: str | None
    received: Received


class FormReader:
    """Takes the pieces of a body, on one thread at a time; InvalidRequest and PayloadTooLarge as soon as they tell.

    `finish` answers the texts in their order and the files, without fields for which nothing was chosen; `discard` gives up
    what has arrived.  A subclass may refuse a part before it is read.
    """

    def __init__(self, receiver: Callable[[], Receiver], boundary: str, limits: FormLimits) -> None:
        if not boundary or not boundary.isascii():
            raise InvalidRequest("a form is sent as multipart/form-data and names the boundary of its parts there")
        self._make, self._limits = receiver, limits
        self._decoder = MultipartDecoder(boundary.encode(), _HELD, max_parts=limits.parts)
        self._last = f"\r\n--{boundary}--".encode()
        self._kept = b""
        self._texts: list[tuple[str, bytes]] = []
        self._texts_size = 0
        self._files: list[SentFile] = []
        self._open: tuple[File, Receiver] | None = None

    def accept(self, name: str, *, is_file: bool) -> None:
        """Called where a part begins; any is taken here."""

    def feed(self, body: bytes) -> None:
        """A piece of the body."""
        for start in range(0, len(body), _PIECE):
            self._read(self._keep_back(self._kept + body[start : start + _PIECE]))

    def _keep_back(self, data: bytes) -> bytes:
        """The data but for an end that may be the beginning of a boundary: the decoder takes the CR of some for a byte of the
        file (werkzeug's issue 3285)."""
        at = data.rfind(b"\r", max(0, len(data) - len(self._last) + 1))
        keeps = at >= 0 and self._last.startswith(data[at:])
        self._kept = data[at:] if keeps else b""
        return data[:at] if keeps else data

    def _read(self, piece: bytes | None) -> None:
        for event in self._events(piece):
            if isinstance(event, Field | File):
                self._begin(event)
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
            told = Sentence(
                "a form has at most %(parts)s parts, with short headers and nothing around them; send fewer at once",
                parts=self._limits.parts,
            )
            raise PayloadTooLarge(told) from error
        except (ValueError, AttributeError) as error:  # bytes that make no sense to the decoder
            raise InvalidRequest("the form was cut off, or is no multipart/form-data; send it again") from error

    def _begin(self, part: Field | File) -> None:
        if not part.name:
            raise InvalidRequest("every part of a form has a name")
        self.accept(part.name, is_file=isinstance(part, File))
        self._count(sum(len(name) + len(value) for name, value in part.headers))
        if isinstance(part, Field):
            self._texts.append((part.name, b""))
            return
        if len(self._files) >= self._limits.files:
            raise PayloadTooLarge(
                Sentence("a form takes at most %(files)s files; send the others after them", files=self._limits.files)
            )
        self._open = (part, self._make())

    def _take(self, data: Data) -> None:
        if self._open is None:
            name, before = self._texts[-1]
            self._texts[-1] = (name, before + data.data)
            self._count(len(data.data))
            return
        part, receiver = self._open
        receiver.write(data.data)
        if receiver.size > self._limits.file_bytes:
            raise PayloadTooLarge(Sentence("a file has at most %(file_bytes)s KiB here", file_bytes=self._limits.file_bytes >> 10))
        if not data.more_data:
            if receiver.size or part.filename:
                media_type = part.headers.get("Content-Type")
                self._files.append(SentFile(part.name, part.filename, media_type, receiver.finish()))
            else:
                receiver.discard()
            self._open = None

    def _count(self, size: int) -> None:
        """Names are texts like any: they become input as well."""
        self._texts_size += size
        if self._texts_size > self._limits.text_bytes:
            most = self._limits.text_bytes >> 10
            raise PayloadTooLarge(Sentence("the texts of a form, with their names, have at most %(most)s KiB together", most=most))

    def finish(self) -> tuple[list[tuple[str, str]], list[SentFile]]:
        self._read(self._kept)
        self._read(None)
        try:
            return [(name, data.decode()) for name, data in self._texts], self._files
        except UnicodeDecodeError as error:
            raise InvalidRequest("the texts of the form are not UTF-8; send them so") from error

    def discard(self) -> None:
        if self._open is not None:
            self._open[1].discard()
        for file in self._files:
            file.received.discard()
